// A browser starts no worker from a file:// page. There the search runs in a hidden frame that stands in for one.
// The search of the theme looks for the name IFrameWorker, and the theme's offline plugin for that of this file.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    this.frame.srcdoc = `<script>postMessage = (data) => frameElement.answer(data)</script><script src="${url}"></script>`;
    this.frame.answer = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    this.ready = new Promise((resolve) => this.frame.addEventListener("load", resolve));
    document.documentElement.append(this.frame);
  }

  postMessage(data) {
    this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
  }
}
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = IFrameWorker;
}
