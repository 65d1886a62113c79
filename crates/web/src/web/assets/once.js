
// A form that the browser sends by itself is sent once. A second click would use up the link of a login before the next page is there.
addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post" || event.defaultPrevented) return;
  if ("isSent" in form.dataset) event.preventDefault();
  form.dataset.isSent = "";
  // The reader may have stopped it.
  setTimeout(() => delete form.dataset.isSent, 10000);
});
// The browser may show the page again as it was left.
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("[data-is-sent]")) delete form.dataset.isSent;
});
