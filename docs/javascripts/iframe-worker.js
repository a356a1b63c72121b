// Makes the search work when a page is opened from disk. Browsers refuse to start workers there, so
// the theme's search runs in a hidden frame instead: the same script, the same messages. The plugin
// `offline` would load a script for this from another site; it leaves that out because the name of
// this file says what it is.

// What the search calls in its worker, written into the frame.
function inFrame() {
  window.postMessage = data => window.parent.postMessage(data, "*");
  window.importScripts = (...scripts) =>
    scripts.reduce(
      (before, src) =>
        before.then(
          () =>
            new Promise((loaded, failed) => {
              const script = Object.assign(document.createElement("script"), {src, onload: loaded, onerror: failed});
              document.body.append(script);
            }),
        ),
      Promise.resolve(),
    );
}

class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    this.ready = new Promise(loaded => (this.frame.onload = loaded));
    const page = this.frame.contentDocument;
    page.open();
    page.write(`<body><script>(${inFrame})()</script><script src="${url}"></script></body>`);
    page.close();
    window.addEventListener("message", event => {
      if (event.source === this.frame.contentWindow)
        this.dispatchEvent(new MessageEvent("message", {data: event.data}));
    });
  }

  postMessage(data) {
    this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", {data})));
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
