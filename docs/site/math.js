// Typesets the equations of a page with KaTeX; pages without any do not load it (tools/site_hooks.py).
for (const place of document.querySelectorAll(".arithmatex")) {
  const [, open, tex] = place.textContent.match(/^\\([([])([^]*)\\[)\]]$/); // \(…\) in a line, \[…\] displayed
  katex.render(tex, place, { displayMode: open === "[" });
}
