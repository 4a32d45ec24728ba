// Browsers refuse workers to pages that were opened from a folder. Search then runs its script in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inner = frame.contentWindow;
      this.inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = this.inner.document.createElement("script");
      script.src = url;
      this.ready = new Promise((resolve) => script.addEventListener("load", resolve));
      this.inner.document.body.append(script);
    }

    async postMessage(data) {
      await this.ready;
      this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data }));
    }
  };
}
