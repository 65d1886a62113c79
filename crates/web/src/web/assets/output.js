
// ---- Output -------------------------------------------------------------------------------------------------------------------

const MAX_LINES = 5000;

// Ends while the page is hidden, like the stream of news. Begins anew when it is shown, or when the daemon is back.
async function followOutput(pre) {
  const leaving = new AbortController();
  const leave = () => document.hidden && leaving.abort();
  document.addEventListener("visibilitychange", leave);
  // Colours and cursor movements of a terminal.
  const plain = (text) => text.replace(/\u001b\[[0-9;?]*[ -/]*[@-~]|\u001b\][^\u0007]*\u0007|\r(?!\n)/g, "");
  let isOver = false;
  try {
    const answer = await fetch(pre.dataset.source, { signal: leaving.signal });
    // While too many follow, there may soon be a place.
    const isFull = answer.status === 503;
    isOver = !answer.ok && !isFull;
    if (isFull && !pre.dataset.told) {
      pre.dataset.told = "yes";
      tellProblem(await answer.text());
    }
    if (answer.ok) {
      pre.replaceChildren();
      let nLines = 0;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
        const text = plain(value);
        pre.append(text);
        nLines += text.split("\n").length - 1;
        if (nLines > 2 * MAX_LINES) {
          pre.textContent = pre.textContent.split("\n").slice(-MAX_LINES).join("\n");
          nLines = MAX_LINES;
          find("#output-cut").hidden = false;
        }
        if (follow.checked) pre.scrollTop = pre.scrollHeight;
      }
      isOver = find("#launch [data-state=ended]") !== null || live.source?.readyState === EventSource.OPEN;
    }
  } catch { /* left, or the daemon is away */ }
  document.removeEventListener("visibilitychange", leave);
  if (isOver && !leaving.signal.aborted) return;
  if (document.hidden) {
    document.addEventListener("visibilitychange", () => followOutput(pre), { once: true });
  } else {
    setTimeout(() => followOutput(pre), 2000);
  }
}

if (script) followTranscript();
