"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("has-js");
  const byId = (id) => document.getElementById(id);

  function element(tag, attributes = {}, ...children) {
    const created = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) created.setAttribute(name, value);
    created.append(...children); // strings become text nodes: names are never parsed as markup
    return created;
  }

  // ---- theme ----------------------------------------------------------------------------------------------------
  function theme() {
    return root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  }
  byId("theme").addEventListener("click", () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    try { localStorage.setItem("uiat-theme", root.dataset.theme); } catch { /* storage is disabled */ }
  });
  try {
    const kept = localStorage.getItem("uiat-theme");
    if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  } catch { /* storage is disabled */ }

  // ---- tables: sorting and copying ------------------------------------------------------------------------------
  const cellValue = (row, column) => {
    const text = row.cells[column].dataset.v ?? row.cells[column].textContent;
    return text !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
  };
  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), undefined, { numeric: true });
  }
  function sortBy(table, column, heading) {
    const first = heading.classList.contains("number") ? "descending" : "ascending";
    const other = first === "descending" ? "ascending" : "descending";
    const order = heading.getAttribute("aria-sort") === first ? other : first;
    for (const each of heading.parentElement.cells) each.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => sign * compare(cellValue(a, column), cellValue(b, column)));
    table.tBodies[0].append(...rows);
  }
  async function copyTable(table, button) {
    const lines = [...table.rows].map((row) =>
      [...row.cells].map((cell) => cell.innerText.replace(/\s+/g, " ").trim()).join("\t"));
    const text = lines.join("\n");
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = element("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy the table"; }, 1500);
  }
  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      if (heading.classList.contains("plain")) return;
      const button = element("button", { type: "button" }, heading.textContent);
      heading.replaceChildren(button);
      button.addEventListener("click", () => sortBy(table, column, heading));
      if (heading.hasAttribute("data-down")) heading.setAttribute("aria-sort", "descending");
    });
    const copy = element("button", { type: "button", class: "copy" }, "Copy the table");
    copy.addEventListener("click", () => copyTable(table, copy));
    (table.closest(".scroll") || table).after(copy);
  }

  // ---- examples at every ε --------------------------------------------------------------------------------------
  const holder = byId("payload");
  if (!holder) return;
  const data = JSON.parse(holder.textContent);
  const [channels, height, width] = data.shape;
  const size = channels * height * width;
  const slider = byId("eps");
  const state = { example: data.hero, frame: 2 * data.zero, networks: [0], half: "all" };
  if (data.right !== null) state.networks.push(data.right);

  async function unpacked(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  const naturals = new Map();
  const unpackedFrames = new Map();
  async function natural(example) {
    if (!naturals.has(example)) naturals.set(example, unpacked(data.examples[example].pixels));
    return naturals.get(example);
  }
  /** Return the pixels of every frame: those of the frame nearer to the natural image plus a difference modulo 256. */
  async function framesOf(run, example) {
    const key = `${run}/${example}`;
    if (!unpackedFrames.has(key)) unpackedFrames.set(key, build(run, example));
    return unpackedFrames.get(key);
  }
  async function build(run, example) {
    const changes = await unpacked(data.runs[run].frames[example]);
    const frames = Array(data.radii.length);
    frames[data.zero] = await natural(example);
    let offset = 0;
    const step = (to, from) => {
      const frame = new Uint8Array(size);
      for (let k = 0; k < size; k += 1) frame[k] = (frames[from][k] + changes[offset + k]) & 255;
      offset += size;
      frames[to] = frame;
    };
    for (let k = data.zero - 1; k >= 0; k -= 1) step(k, k + 1);
    for (let k = data.zero + 1; k < frames.length; k += 1) step(k, k - 1);
    return frames;
  }

  function paint(canvas, levelAt) {
    canvas.width = width;
    canvas.height = height;
    const context = canvas.getContext("2d");
    const picture = context.createImageData(width, height);
    for (let at = 0; at < height * width; at += 1) {
      for (let c = 0; c < 3; c += 1) picture.data[4 * at + c] = levelAt((channels === 1 ? 0 : c) * height * width + at);
      picture.data[4 * at + 3] = 255;
    }
    context.putImageData(picture, 0, 0);
  }

  // The images and class probabilities of one network.
  function networkView(position) {
    const chooser = element("select", { "aria-label": "Network" });
    data.runs.forEach((run, k) => chooser.append(element("option", { value: k }, run.label)));
    chooser.value = state.networks[position];
    chooser.addEventListener("change", () => { state.networks[position] = Number(chooser.value); show(); });
    const canvases = ["image", "perturbation"].map(() => element("canvas", { class: "pixels", role: "img" }));
    const captions = [element("figcaption"), element("figcaption")];
    const bars = element("ul", { class: "bars" });
    const view = element("div", { class: "network" },
      element("h3", {}, chooser),
      element("div", { class: "pictures" },
        ...canvases.map((canvas, k) => element("figure", {}, canvas, captions[k]))),
      bars);
    byId("pair").append(view);
    canvases.forEach(draggable);

    function drawBars(run, example) {
      const { shown, y } = data.examples[example];
      const p = run.p[example][state.frame];
      const guess = run.guess[example][state.frame];
      bars.replaceChildren(...shown.map((label, k) => {
        const fill = element("div", { class: "fill-bar" });
        fill.style.width = `${p[k] / 100}%`;
        const value = (p[k] / 10000).toFixed(4);
        const kinds = `${label === y ? "true" : ""} ${label === guess ? "taken" : ""}`.trim();
        return element("li", { class: kinds, "data-class": label },
          element("span", { class: "label", title: data.classes[label] }, data.classes[label]),
          element("div", { class: "track", "aria-hidden": "true" }, fill),
          element("span", { class: "value" }, value));
      }));
    }

    return async () => {
      const index = state.networks[position], run = data.runs[index], { example, frame } = state;
      const frames = await framesOf(index, example);
      if (example !== state.example || frame !== state.frame) return; // the state has changed while frames were unpacked
      const before = frames[data.zero], now = frames[frame];
      const most = Math.abs(data.grid[data.grid.length - 1]) * 255;
      paint(canvases[0], (k) => now[k]);
      paint(canvases[1], (k) => 128 + Math.round(((now[k] - before[k]) / most) * 127));
      const label = data.classes[data.examples[example].y], eps = data.radii[frame];
      canvases[0].setAttribute("aria-label", `A ${label} at ε = ${eps}`);
      canvases[1].setAttribute("aria-label", `Its perturbation at ε = ${eps}, magnified`);
      captions[0].textContent = `${label}, ε = ${eps}`;
      captions[1].textContent = `perturbation, ×${(127.5 / most).toPrecision(2)}`;
      drawBars(run, example);
    };
  }

  function draggable(canvas) {
    canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
    canvas.addEventListener("pointermove", (event) => {
      if (!canvas.hasPointerCapture(event.pointerId)) return;
      const box = canvas.getBoundingClientRect();
      const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      goTo(state.example, Math.round(share * (data.radii.length - 1)));
    });
  }

  // ---- thumbnails -----------------------------------------------------------------------------------------------
  const thumbs = data.examples.map((example, k) => {
    const canvas = element("canvas", { class: "pixels", "aria-hidden": "true" });
    const tick = element("span", { class: "tick", "aria-hidden": "true" });
    const button = element("button", { type: "button" }, canvas, tick);
    button.addEventListener("click", () => goTo(k, state.frame));
    byId("thumbs").append(button);
    return { button, canvas, tick, example };
  });
  function showThumbs() {
    const network = state.networks[0];
    thumbs.forEach(async ({ button, canvas, tick, example }, k) => {
      button.hidden = state.half !== "all" && example.easier !== (state.half === "easier");
      const guess = data.runs[network].guess[k][state.frame], right = guess === example.y;
      button.classList.toggle("wrong", !right);
      button.setAttribute("aria-current", String(k === state.example));
      button.setAttribute("aria-label",
        `Example ${k + 1}: ${data.classes[example.y]}, classified as ${data.classes[guess]}, ${right ? "correct" : "wrong"}`);
      tick.textContent = right ? "✓" : "✗";
      const frame = state.frame, frames = await framesOf(network, k);
      if (frame === state.frame) paint(canvas, (at) => frames[frame][at]);
    });
  }

  // ---- the dot on the curve -------------------------------------------------------------------------------------
  const svg = document.querySelector("#curve svg");
  const [x0, x1, y0, y1] = svg.dataset.ends.split(" ").map(Number);
  const [left, right, bottom, top] = svg.dataset.box.split(" ").map(Number);
  const across = (x) => left + ((x - x0) / (x1 - x0)) * (right - left);
  const up = (y) => bottom - ((y - y0) / (y1 - y0)) * (bottom - top);
  const inSvg = (tag) => svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", tag));
  const cursor = inSvg("path");
  cursor.setAttribute("class", "cursor");
  const dots = data.runs.map((_, k) => {
    const dot = inSvg("circle");
    dot.setAttribute("class", `here s${k % 6}`);
    dot.setAttribute("r", 5.5);
    return dot;
  });
  function accuracyAt(curve, eps) {
    const { grid } = curve, values = curve[state.half];
    const after = grid.findIndex((value) => value >= eps - 1e-9);
    if (after < 0) return null;
    if (after === 0) return grid[0] - eps < 1e-9 ? values[0] : null;
    const share = (eps - grid[after - 1]) / (grid[after] - grid[after - 1]);
    return values[after - 1] + share * (values[after] - values[after - 1]);
  }
  function showDots() {
    const eps = data.grid[state.frame];
    cursor.setAttribute("d", `M${across(eps)} ${top}V${bottom}`);
    data.runs.forEach((run, k) => {
      const value = accuracyAt(run.curve, eps);
      dots[k].style.display = value === null ? "none" : "";
      dots[k].setAttribute("cx", across(eps));
      dots[k].setAttribute("cy", up(value ?? 0));
    });
  }

  // ---- state and controls ---------------------------------------------------------------------------------------
  const views = state.networks.map((_, position) => networkView(position));
  function statusText() {
    const { example, frame } = state, truth = data.examples[example].y;
    const said = [...new Set(state.networks)].map((k) => {
      const run = data.runs[k], guess = run.guess[example][frame];
      return `${run.label}: ${data.classes[guess]} (${guess === truth ? "correct" : "wrong"})`;
    });
    const side = frame < data.zero ? "inverse adversarial" : frame > data.zero ? "adversarial" : "natural";
    return `${side}, ε = ${data.radii[frame]}. ${said.join("; ")}`;
  }
  function show() {
    slider.value = state.frame;
    slider.setAttribute("aria-valuetext", `ε = ${data.radii[state.frame]}`);
    byId("eps-out").textContent = `= ${data.radii[state.frame]}`;
    byId("status").textContent = statusText();
    views.forEach((view) => view());
    showThumbs();
    showDots();
  }
  const asciiRadius = (frame) => data.radii[frame].replace("−", "-");
  function goTo(example, frame, { keep = true } = {}) {
    state.example = example;
    state.frame = frame;
    show();
    if (keep) history.replaceState(null, "", `#example=${example + 1}&eps=${asciiRadius(frame)}`);
  }
  function fromAddress() {
    const fields = new URLSearchParams(location.hash.slice(1));
    const example = Number(fields.get("example")) - 1;
    const frame = data.radii.findIndex((_, k) => asciiRadius(k) === fields.get("eps"));
    goTo(data.examples[example] ? example : state.example, frame >= 0 ? frame : state.frame, { keep: false });
  }
  slider.addEventListener("input", () => { endGuess(); goTo(state.example, Number(slider.value)); });
  addEventListener("hashchange", fromAddress);
  for (const button of document.querySelectorAll("[data-half][aria-pressed]")) {
    button.addEventListener("click", () => {
      state.half = button.dataset.half;
      for (const each of document.querySelectorAll("[data-half][aria-pressed]")) {
        each.setAttribute("aria-pressed", String(each === button));
      }
      byId("curve-section").dataset.half = state.half;
      show();
    });
  }

  // ---- guessing the prediction ----------------------------------------------------------------------------------
  const score = { asked: 0, right: 0 };
  function endGuess() {
    byId("explorer").classList.remove("hidden-answer");
    byId("guess-choices").replaceChildren();
  }
  byId("guess").addEventListener("click", () => {
    const example = Math.floor(Math.random() * data.examples.length);
    const run = data.runs[state.networks[0]];
    byId("explorer").classList.add("hidden-answer");
    goTo(example, Math.floor(Math.random() * data.radii.length), { keep: false });
    byId("guess-text").textContent = `Which class does ${run.label} predict?`;
    byId("guess-choices").replaceChildren(...data.examples[example].shown.map((label) => {
      const button = element("button", { type: "button" }, data.classes[label]);
      button.addEventListener("click", () => {
        const guess = run.guess[example][state.frame];
        score.asked += 1;
        score.right += Number(label === guess);
        endGuess();
        byId("guess-text").textContent = `${label === guess ? "Yes" : "No"}: ${run.label} predicts ` +
          `${data.classes[guess]}. ${score.right} of ${score.asked} guessed correctly.`;
      });
      return button;
    }));
  });

  if (typeof DecompressionStream === "undefined") {
    byId("explorer").replaceChildren(element("p", { class: "flag" }, "This browser does not support DecompressionStream, which the slider needs."));
    return;
  }
  fromAddress();
})();
