
// ---- Forms that are refused -----------------------------------------------------------------------------------------------------

// The field that a problem is about says what is to be written into it, and gets the focus.
function markField(form, { path, message }) {
  const field = path && find(`[name="${CSS.escape(path)}"]:not([type=hidden])`, form);
  if (!field) return false;
  const error = make("p", { className: "error", id: `${field.id || field.name}-e` }, icon("i-bad"), message);
  const place = field.closest(".field, .choices, .choice-of");
  place?.classList.add("is-wrong");
  (place ?? field).insertAdjacentElement(place?.matches(".field") ? "beforeend" : "afterend", error);
  field.setAttribute("aria-invalid", "true");
  field.dataset.hints = field.getAttribute("aria-describedby") ?? "";
  field.setAttribute("aria-describedby", `${error.id} ${field.dataset.hints}`.trim());
  field.closest("details")?.setAttribute("open", "");
  field.focus();
  return true;
}

function unmark(field) {
  field.removeAttribute("aria-invalid");
  if (field.dataset.hints) field.setAttribute("aria-describedby", field.dataset.hints);
  else field.removeAttribute("aria-describedby");
  document.getElementById(`${field.id || field.name}-e`)?.remove();
  field.closest(".is-wrong")?.classList.remove("is-wrong");
}
const WRONG = "[aria-invalid=true]";
document.addEventListener("input", (event) => { if (event.target.matches(WRONG)) unmark(event.target); });
document.addEventListener("submit", (event) => findAll(WRONG, event.target).forEach(unmark), true);

// ---- Forms that did not arrive ------------------------------------------------------------------------------------------------

// The button that sends what did not arrive.
function sendingAgain(element) {
  if (element === body || element.id === "panel") return null;
  const run = () => {
    if (!element.isConnected) return;
    if (element.requestSubmit) element.requestSubmit(element.picked);
    else element.click();
  };
  return { text: body.dataset.sendAgain, run };
}

// A form whose id is not accepted gets another one. It stays as it is written, and the reader decides whether to send it again.
function renewForm(form, { response, text }) {
  find("[name=form_id]", form).value = response.headers.get("form-id");
  if (form.matches("[data-draft]")) keepTaskDraft(form);
  toast(body.dataset.wentWrong, { detail: problemIn(text).detail, action: sendingAgain(form) });
}

// ---- What was changed elsewhere meanwhile ---------------------------------------------------------------------------------------

const changedNote = (form) => find(".was-changed", form);

// A form that is based on an older revision. The reader compares, and saves or leaves it.
async function tellChanged(form) {
  const shown = form.closest("[data-shows-task]");
  // What is shown anew meanwhile leaves the note and the value of the reader.
  form.setAttribute("hx-morph-skip", "");
  const part = await fetchPart(shown ? `${root}/ui/parts/tasks/${shown.dataset.showsTask}` : location.pathname);
  if (!part) form.removeAttribute("hx-morph-skip");
  if (!part) { toast(body.dataset.wentWrong, { detail: body.dataset.wasChanged }); return; }
  const newest = document.createElement("template");
  newest.innerHTML = part;
  changedNote(form)?.remove();
  const note = make("div", { className: "call wait was-changed", tabIndex: -1, role: "alert" }, icon("i-warn"),
    make("p", {}, make("b", { textContent: find("[data-saved-by]", newest.content)?.dataset.savedBy ?? body.dataset.wasChanged })),
    make("p", { className: "row wrap" },
      makeButton("btn", body.dataset.compare, () => compare(form, newest.content)),
      makeButton("btn primary", body.dataset.saveMine, () => saveMine(form, newest.content))));
  form.append(note);
  note.focus();
}

// Below the note: each field whose newest value differs from that of the reader.
function compare(form, newest) {
  const note = changedNote(form);
  find("dl", note)?.remove();
  const list = make("dl");
  for (const field of form.elements) {
    const theirs = field.name && find(`[name="${field.name}"]:not([type=hidden])`, newest);
    if (!theirs || theirs.value === field.value) continue;
    const textContent = `${field.labels[0]?.textContent ?? field.getAttribute("aria-label")} · ${body.dataset.savedNow}`;
    const value = { className: "keep-lines", dir: "auto", textContent: theirs.selectedOptions?.[0].textContent ?? theirs.value };
    list.append(make("dt", { textContent }), make("dd", value));
  }
  const own = find(".edit", form);
  if (own) list.append(make("dd", { textContent: find(`#${own.id}`, newest).getAttribute("aria-label") }));
  note.append(list);
}

function saveMine(form, newest) {
  changedNote(form).remove();
  form.removeAttribute("hx-morph-skip");
  find("[name=revision]", form).value = find("[name=revision]", newest).value;
  form.requestSubmit(form.picked);
}

// ---- A property that is picked from a list --------------------------------------------------------------------------------------

// The focus comes back to where it was when the list was opened.
function openProperty(name) {
  const button = find(`#edit-${name}`);
  button?.focus();
  button?.click();
}
// The list may still be that of an older text.
function pickFirst(pick) {
  if (!pick.matches(":popover-open")) return;
  if (find("[data-q]", pick)?.dataset.q === find("[name=q]", pick).value) find("[role=option]", pick)?.click();
  else setTimeout(pickFirst, 50, pick);
}
document.addEventListener("keydown", (event) => {
  const pick = event.target.closest?.(".pick");
  if (!pick || event.isComposing || event.ctrlKey || event.altKey || event.metaKey) return;
  const all = findAll("[name=q], [role=option]", pick);
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  // What is typed at a value goes on with the search.
  if (/^\S$/u.test(event.key)) all[0].focus();
  if (step) all[all.indexOf(event.target) + step]?.focus();
  else if (event.key === "Enter" && event.target === all[0]) pickFirst(pick);
  else return;
  event.preventDefault();
});
// What was picked is known also if it has to be sent again. The focus goes back to the property.
document.addEventListener("submit", ({ target, submitter }) => {
  if (!target.matches(".property")) return;
  target.picked = submitter;
  find("[name=q]", target).value = "";
  find(".pick", target).hidePopover();
});

// ---- A login that ended ---------------------------------------------------------------------------------------------------------

const loginAgain = find("#login-again");

// The page stays as it is, with all that was written. A login here or in another tab of the browser lets the reader go on.
function askLogin() {
  if (!loginAgain) location.reload();
  else if (!loginAgain.open) loginAgain.showModal();
}

async function goOnAfterLogin() {
  const answer = await fetch(`${root}/ui/settings`, { headers: { "hx-request": "true" } }).catch(() => null);
  if (!answer?.ok) return false;
  loginAgain.close();
  find("#login-link").value = "";
  listen();
  return true;
}

loginAgain?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const error = find(".error", loginAgain);
  error.hidden = true;
  // The answer leads to a page, which is not wanted here.
  await fetch(`${root}/login`, { method: "POST", redirect: "manual", body: new URLSearchParams({ link: find("#login-link").value }) }).catch(() => null);
  if (await goOnAfterLogin()) return;
  error.hidden = false;
  find("#login-link").focus();
});
addEventListener("focus", () => { if (loginAgain?.open) goOnAfterLogin(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden && loginAgain?.open) goOnAfterLogin(); });
