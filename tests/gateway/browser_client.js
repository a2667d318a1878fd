// What a page does with a gateway, with nothing but what browsers have: fetch, EventSource, WebSocket.
// Runs in a browser (browser_page.html) and in Node; tells what it saw by publishing it on the channel "results".

async function follow(base, wanted) {
  // A window of three closes the stream again and again: coming back is what acknowledges.
  const source = new EventSource(`${base}/v1/channels/room/subscriptions/ann/events?window=3`);
  const seen = { ids: [], opened: 0, errors: 0 };
  await new Promise((resolve, reject) => {
    source.onopen = () => { seen.opened += 1; };
    source.onerror = () => {
      seen.errors += 1;
      if (source.readyState === EventSource.CLOSED) reject(new Error("the stream was refused"));
    };
    source.addEventListener("message", (event) => {
      seen.ids.push(JSON.parse(event.data).id);
      if (seen.ids.length === wanted) resolve();
    });
  });
  source.close();
  return seen;
}

function open(base) {
  const url = `${base.replace("http", "ws")}/v1/channels/room/subscriptions/bob/socket?window=4`;
  return new WebSocket(url, ["penstock.v1"]);
}

// Takes batches; acknowledges all but the last, then goes away without a word, and comes again.
async function talk(base, wanted, acknowledgesAll) {
  const socket = open(base);
  const seen = { ids: [], protocol: "", acked: 0 };
  await new Promise((resolve, reject) => {
    socket.onopen = () => { seen.protocol = socket.protocol; };
    socket.onclose = (event) => reject(new Error(`closed: ${event.code} ${event.reason}`));
    socket.onmessage = (event) => {
      const frame = JSON.parse(event.data);
      if (frame.type === "acked") {
        seen.acked += 1;
        if (acknowledgesAll && seen.ids.length >= wanted) resolve();
      }
      if (frame.type !== "messages") return;
      seen.ids.push(...frame.messages.map((message) => message.id));
      const isLast = seen.ids.length >= wanted;
      if (acknowledgesAll || !isLast) socket.send(JSON.stringify({ type: "ack", receipt: frame.receipt }));
      else resolve();
    };
  });
  socket.onclose = null;
  socket.close();
  return seen;
}

async function report(base, name, value) {
  const answer = await fetch(`${base}/v1/channels/results/messages?id=${name}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(value),
  });
  if (!answer.ok) throw new Error(`${answer.status}: ${await answer.text()}`);
}

async function main(base) {
  try {
    const made = await fetch(`${base}/v1/channels/room/subscriptions/cid`, { method: "PUT" });
    const events = await follow(base, 8);
    const first = await talk(base, 8, false);
    const second = await talk(base, 8 - first.acked * 4, true);
    await report(base, "done", { made: made.status, events, first, second });
  } catch (error) {
    await report(base, "failed", String(error));
  }
}

if (typeof window === "undefined") {
  // A stream that waits to come again does not keep Node alive.
  const alive = setInterval(() => {}, 1000);
  main(process.argv[2]).finally(() => clearInterval(alive));
} else main(new URLSearchParams(window.location.search).get("gateway"));
