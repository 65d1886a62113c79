// What the page does by itself: it listens to what happens and asks for the parts that show it; it moves cards, talks in the chat
// panel, follows output. What anything means is decided by the daemon.
"use strict";

const body = document.body;
const find = (selector, within = document) => within.querySelector(selector);
const findAll = (selector, within = document) => [...within.querySelectorAll(selector)];

// ---- Telling the reader -------------------------------------------------------------------------------------------------------

function toast(headline, detail) {
  const toast = document.createElement("p");
  toast.className = "toast";
  const strong = document.createElement("strong");
  strong.textContent = headline;
  toast.append(strong, detail ? ` ${detail}` : "");
  const close = document.createElement("button");
  close.className = "quiet";
  close.textContent = "✕";
  close.addEventListener("click", () => toast.remove());
  toast.append(close);
  find("#toasts").append(toast);
  setTimeout(() => toast.remove(), 12000);
}

// A problem (RFC 9457) in the daemon's words.
async function tellProblem(text) {
  let problem = {};
  try { problem = JSON.parse(text); } catch { /* not from this daemon */ }
  toast(body.dataset.wentWrong, [problem.detail, problem.hint].filter(Boolean).join(" · "));
}

document.addEventListener("htmx:response:error", (event) => {
  const { ctx } = event.detail;
  if (ctx.response.status === 401) location.reload();
  else tellProblem(ctx.text);
  const form = ctx.sourceElement.closest?.("[data-reopen-when-done]");
  if (ctx.response.status === 412 && form) seeNewest(form);
});

// Somebody else changed what this form is about: saved once more, it replaces that.
async function seeNewest(form) {
  const part = await fetchPart(form.dataset.reopenWhenDone);
  if (part === null) return;
  const holder = document.createElement("template");
  holder.innerHTML = part;
  find("[name=revision]", form).value = find("[name=revision]", holder.content).value;
  toast(body.dataset.saveAgain);
}
document.addEventListener("htmx:error", () => toast(body.dataset.lostContact));
document.addEventListener("htmx:after:request", (event) => {
  const { ctx } = event.detail;
  if (ctx.response.status !== 204) return;
  if (ctx.sourceElement.matches("[data-close-when-done]")) closePanel();
  const reopened = ctx.sourceElement.dataset.reopenWhenDone;
  if (reopened) htmx.ajax("GET", reopened, { target: "#panel" });
});

// ---- Times, in the words and the zone of the reader ---------------------------------------------------------------------------

const locale = document.documentElement.lang;
const relative = new Intl.RelativeTimeFormat(locale, { numeric: "auto", style: "short" });
const absolute = new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "medium" });
const clock = new Intl.DateTimeFormat(locale, { dateStyle: "short", timeStyle: "short" });

function writeTimes() {
  for (const time of findAll("time")) {
    const at = new Date(time.dateTime);
    const seconds = (at - Date.now()) / 1000;
    const [amount, unit] = Math.abs(seconds) < 60 ? [seconds, "second"]
      : Math.abs(seconds) < 3600 ? [seconds / 60, "minute"] : [seconds / 3600, "hour"];
    const text = Math.abs(seconds) < 86400 ? relative.format(Math.round(amount), unit) : clock.format(at);
    if (time.textContent !== text) time.textContent = text;
    if (!time.title) time.title = absolute.format(at);
  }
}
setInterval(writeTimes, 5000);

// ---- What happens -------------------------------------------------------------------------------------------------------------

// One stream per page. A page that nobody sees gives it up, so that many tabs don't use up what a browser grants to one server;
// a chat keeps it, because its panel is open as long as the stream is.
const live = { source: null, after: Number(body.dataset.after), chat: null, pending: new Set(), tasks: new Set(), workspaces: new Set() };

function listen() {
  live.source?.close();
  if (document.hidden && !live.chat) { live.source = null; return; }
  const query = new URLSearchParams({ after: live.after });
  if (live.chat) query.set("chat", live.chat);
  const source = new EventSource(`${body.dataset.events}?${query}`);
  live.source = source;
  const contact = find("#contact");
  const tell = (isThere) => {
    contact.classList.toggle("is-there", isThere);
    contact.textContent = isThere ? contact.dataset.live : contact.dataset.gone;
  };
  source.addEventListener("open", () => {
    tell(true);
    // What could not be fetched meanwhile.
    if (live.tasks.size > 0) hear({ topic: "task" });
  });
  source.addEventListener("error", async () => {
    tell(false);
    if (source.readyState !== EventSource.CLOSED) return;
    // A refusal ends it for good. Whoever isn't logged in any more is shown where to.
    const answer = await fetch("/ui/settings", { headers: { "hx-request": "true" } }).catch(() => null);
    if (answer?.status === 401) location.reload();
    else setTimeout(() => live.source === source && listen(), 3000);
  });
  source.addEventListener("message", (event) => {
    if (event.lastEventId) live.after = Number(event.lastEventId);
    for (const news of JSON.parse(event.data)) hear(news);
  });
}

// News are gathered for a moment: ten in a row ask for the same part once.
function hear(news) {
  if (live.pending.size === 0) setTimeout(tellParts, 30);
  live.pending.add(news.topic);
  if (news.task) live.tasks.add(news.task);
  if (news.topic === "workspace") live.workspaces.add(news.task);
}

function tellParts() {
  const topics = [...live.pending];
  live.pending.clear();
  const all = topics.includes("reset");
  const trigger = (name) => body.dispatchEvent(new CustomEvent(`live-${name}`));
  if (all || topics.includes("task") || topics.includes("workspace")) showChangedTasks(all);
  const changes = find("[data-changes-of]");
  if (changes && (all || live.workspaces.has(changes.dataset.changesOf))) trigger("changes");
  live.workspaces.clear();
  if (all || topics.some((topic) => topic === "work" || topic === "task")) trigger("work");
  if (all || topics.includes("work")) { trigger("launch"); trigger("task"); }
  if (all || topics.includes("status")) trigger("status");
  if (all || topics.includes("chat") || topics.includes("work")) fetchMessages();
}

document.addEventListener("visibilitychange", () => {
  const isListening = live.source && live.source.readyState !== EventSource.CLOSED;
  if (document.hidden ? isListening && !live.chat : !isListening) listen();
});

// ---- The board ----------------------------------------------------------------------------------------------------------------

const board = () => find("#board");

// Fetches the cards of changed tasks and puts each where it belongs.
let isShowingTasks = false;
async function showChangedTasks(all) {
  // One at a time: an older answer must not come after a newer one.
  if (isShowingTasks) { setTimeout(() => showChangedTasks(all), 50); return; }
  isShowingTasks = true;
  try { await showTasks(all); } finally { isShowingTasks = false; }
}

async function showTasks(all) {
  const ids = [...live.tasks];
  live.tasks.clear();
  const shown = find("[data-shows-task]");
  if (shown) body.dispatchEvent(new CustomEvent("live-task"));
  if (!board()) return;
  if (all || ids.length > 50) { body.dispatchEvent(new CustomEvent("live-board")); return; }
  if (ids.length === 0) return;
  const answer = await fetchPart(`/ui/parts/projects/${board().dataset.project}/cards?ids=${ids.join(",")}`);
  if (answer === null) { ids.forEach((id) => live.tasks.add(id)); return; }
  const holder = document.createElement("div");
  holder.innerHTML = answer;
  const changed = find("#changed", holder);
  find("#no-tasks")?.remove();
  for (const card of findAll(".card", changed.content)) place(card);
  for (const [status, count] of Object.entries(JSON.parse(changed.dataset.counts))) {
    find(`#column-${status} .count`).textContent = count;
  }
}

function place(card) {
  const before = document.getElementById(card.id);
  const hadFocus = before !== null && before === document.activeElement;
  before?.remove();
  const column = find(`#column-${card.dataset.status}`);
  const next = findAll(".card", column).find((other) => other.dataset.order > card.dataset.order);
  // Behind the last one that is shown it would be out of its order.
  if (!next && find(".more", column)) return;
  find(".cards", column).insertBefore(card, next ?? null);
  htmx.process(card);
  if (hadFocus) card.focus();
}

async function moveTask(card, status) {
  if (status === card.dataset.status) return;
  const title = find(".title", card).textContent;
  card.classList.add("is-moving");
  const answer = await post(`/ui/do/tasks/${card.dataset.task}/status`, { status });
  card.classList.remove("is-moving");
  if (answer?.ok) find("#moved").textContent = `${title} → ${find(`#title-${status}`).firstChild.textContent.trim()}`;
}

const statusAt = (x, y) => document.elementFromPoint(x, y)?.closest(".column");

document.addEventListener("dragstart", (event) => {
  const card = event.target.closest?.(".card");
  if (!card) return;
  event.dataTransfer.setData("text/plain", card.dataset.task);
  event.dataTransfer.effectAllowed = "move";
  card.classList.add("is-dragged");
  for (const column of findAll(".column")) {
    column.classList.toggle("is-open-for", card.dataset.to.split(" ").includes(column.dataset.status));
  }
});
document.addEventListener("dragend", () => {
  for (const element of findAll(".is-dragged, .is-open-for, .is-over")) {
    element.classList.remove("is-dragged", "is-open-for", "is-over");
  }
});
document.addEventListener("dragover", (event) => {
  const column = event.target.closest?.(".column");
  for (const other of findAll(".is-over")) if (other !== column) other.classList.remove("is-over");
  if (!column?.classList.contains("is-open-for")) return;
  event.preventDefault();
  column.classList.add("is-over");
});
document.addEventListener("drop", (event) => {
  const column = event.target.closest?.(".column");
  const card = find(".card.is-dragged");
  if (!column || !card) return;
  event.preventDefault();
  moveTask(card, column.dataset.status);
});

function openTask(card) {
  if (mayLeavePanel()) htmx.ajax("GET", `/ui/parts/tasks/${card.dataset.task}`, { target: "#panel" });
}

document.addEventListener("click", (event) => {
  const card = event.target.closest(".card");
  if (card) openTask(card);
  if (event.target.closest("[data-close]") && mayLeavePanel()) closePanel();
});

document.addEventListener("keydown", (event) => {
  const card = event.target.closest?.(".card");
  if (event.key === "Escape" && find("#panel")?.hasChildNodes() && !event.isComposing && mayLeavePanel()) closePanel();
  if (!card || event.target !== card) return;
  const column = card.closest(".column");
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (event.key === "Enter") { openTask(card); event.preventDefault(); }
  if (event.key === "ArrowDown") { card.nextElementSibling?.focus(); event.preventDefault(); }
  if (event.key === "ArrowUp") { card.previousElementSibling?.focus(); event.preventDefault(); }
  if (!step) return;
  event.preventDefault();
  const columns = findAll(".column");
  let at = columns.indexOf(column) + step;
  if (event.shiftKey && board().dataset.mayChange === "true") {
    const to = card.dataset.to.split(" ");
    while (columns[at] && !to.includes(columns[at].dataset.status)) at += step;
    if (columns[at]) moveTask(card, columns[at].dataset.status);
  } else {
    while (columns[at] && !find(".card", columns[at])) at += step;
    find(".card", columns[at] ?? column)?.focus();
  }
});

// ---- The panel, and the chat in it --------------------------------------------------------------------------------------------

let openedBy = null;

// What was written into a form of the panel is not thrown away without a question.
document.addEventListener("input", (event) => event.target.closest("#panel .form")?.setAttribute("data-is-written", ""));
const mayLeavePanel = () => !find("#panel [data-is-written]") || confirm(body.dataset.discard);

function closePanel() {
  const panel = find("#panel");
  panel?.replaceChildren();
  showPanel();
  openedBy?.isConnected && openedBy.focus();
}

// Whatever is in the panel now.
function showPanel() {
  const panel = find("#panel");
  if (!panel) return;
  const isOpen = panel.firstElementChild !== null;
  document.body.classList.toggle("has-panel", isOpen);
  const chat = find("[data-chat]", panel);
  const name = chat?.dataset.chat ?? null;
  if (name !== live.chat) {
    live.chat = name;
    listen();
    if (chat && chat.dataset.mayChange === "true") startChat(chat);
  }
  if (chat) {
    showStanding();
    scrollDown(chat);
    // What was said while the panel was on its way.
    fetchMessages();
  }
}

document.addEventListener("htmx:before:request", (event) => {
  const target = event.detail.ctx.target;
  if (target?.id === "panel") openedBy = document.activeElement;
});
document.addEventListener("htmx:after:swap", () => { writeTimes(); showStanding(); });
new MutationObserver(showPanel).observe(find("#panel") ?? document.createElement("div"), { childList: true });

const chats = { unsent: new Map(), isFetching: false, isAgain: false };
const chatOf = () => find("[data-chat]");
const [projectOf, agentOf] = [(chat) => chat.dataset.chat.split("/")[0], (chat) => chat.dataset.chat.split("/")[1]];

function startChat(chat) {
  post(`/api/projects/${projectOf(chat)}/chat/start`, JSON.stringify({ agentId: agentOf(chat) }));
}

function showStanding() {
  const chat = chatOf();
  const button = chat && find("#send", chat);
  if (!button) return;
  const isReady = find("[data-may-say]", chat) !== null;
  button.disabled = !isReady;
  button.textContent = isReady ? button.dataset.ready : button.dataset.preparing;
}

function scrollDown(chat) {
  const list = find(".messages", chat);
  list.scrollTop = list.scrollHeight;
}

// Messages after the last one that is here, in the server's order. One fetch at a time: none is shown twice, or before another.
async function fetchMessages() {
  const chat = chatOf();
  if (!chat) return;
  if (chats.isFetching) { chats.isAgain = true; return; }
  chats.isFetching = true;
  try {
    for (let hasMore = true; hasMore && chat.isConnected;) {
      const list = find(".messages", chat);
      const last = findAll(".message:not(.is-unsent)", list).at(-1)?.dataset.id;
      const query = last ? `?after=${encodeURIComponent(last)}` : "";
      const answer = await fetch(`/ui/parts/projects/${projectOf(chat)}/agents/${agentOf(chat)}/chat/messages${query}`);
      if (answer.status === 404 && last) { reopenChat(chat); break; }
      if (!answer.ok) break;
      hasMore = answer.headers.get("has-more") === "true" && Boolean(last);
      const holder = document.createElement("template");
      holder.innerHTML = await answer.text();
      const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
      for (const message of findAll(".message", holder.content)) {
        document.getElementById(message.id)?.remove();
        chats.unsent.delete(message.dataset.id);
        list.insertBefore(message, find(".is-unsent", list));
      }
      writeTimes();
      if (isAtEnd) scrollDown(chat);
    }
  } catch { /* the next news, or the next contact, fetches them */ } finally {
    chats.isFetching = false;
  }
  if (chats.isAgain) { chats.isAgain = false; fetchMessages(); }
}

// The last message that is here was forgotten by the daemon: the panel begins anew.
function reopenChat(chat) {
  htmx.ajax("GET", `/ui/parts/projects/${projectOf(chat)}/agents/${agentOf(chat)}/chat`, { target: "#panel" });
}

document.addEventListener("click", async (event) => {
  if (!event.target.closest("[data-earlier]")) return;
  const chat = chatOf();
  const list = find(".messages", chat);
  const first = find(".message", list)?.dataset.id;
  const path = `/ui/parts/projects/${projectOf(chat)}/agents/${agentOf(chat)}/chat/messages?before=${encodeURIComponent(first)}`;
  const answer = await fetch(path);
  if (!answer.ok) return;
  const height = list.scrollHeight;
  list.insertAdjacentHTML("afterbegin", await answer.text());
  list.scrollTop += list.scrollHeight - height;
  writeTimes();
  if (answer.headers.get("has-more") !== "true") event.target.remove();
});

function say(chat, content) {
  const id = `msg_${crypto.randomUUID?.() ?? [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16)).join("")}`;
  const message = document.createElement("li");
  message.className = "message is-ours is-unsent";
  message.id = id;
  message.dataset.id = id;
  const sender = document.createElement("span");
  sender.className = "sender";
  sender.textContent = chat.dataset.you;
  const prose = document.createElement("span");
  prose.className = "prose";
  prose.textContent = content;
  message.append(sender, prose);
  find(".messages", chat).append(message);
  scrollDown(chat);
  chats.unsent.set(id, { chat: chat.dataset.chat, content });
  sendUnsent();
}

// One after another, in the order they were written, also when their panel is closed; the id makes a repetition harmless.
let isSending = false;
async function sendUnsent() {
  if (isSending) return;
  isSending = true;
  try {
    while (chats.unsent.size > 0) {
      const [id, { chat, content }] = chats.unsent.entries().next().value;
      const [project, agent] = chat.split("/");
      const path = `/api/projects/${project}/agents/${agent}/chat/messages`;
      const answer = await post(path, JSON.stringify({ id, content }), { isQuiet: true });
      const isRefused = answer && [400, 403, 404, 413, 422].includes(answer.status);
      const shown = document.getElementById(id);
      if (answer?.ok || isRefused) {
        chats.unsent.delete(id);
        if (isRefused) { shown?.remove(); tellProblem(await answer.text()); }
      } else {
        if (shown) find(".sender", shown).textContent = `${chatOf().dataset.you} · ${chatOf().dataset.notSent}`;
        await new Promise((resolve) => setTimeout(resolve, 2000));
      }
    }
  } finally {
    isSending = false;
  }
  fetchMessages();
}

addEventListener("beforeunload", (event) => { if (chats.unsent.size > 0) event.preventDefault(); });

document.addEventListener("submit", (event) => {
  const form = event.target.closest("[data-say]");
  if (!form) return;
  event.preventDefault();
  const field = find("textarea", form);
  if (field.value.trim() === "" || find("#send", form).disabled) return;
  say(chatOf(), field.value);
  field.value = "";
  field.focus();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.isComposing) event.target.closest?.("[data-say]")?.requestSubmit();
});

// ---- Output -------------------------------------------------------------------------------------------------------------------

const MAX_LINES = 5000;

// Given up while nobody sees it, like the stream of news; begun anew when somebody does, or when the daemon is back.
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
        if (find("#follow").checked) pre.scrollTop = pre.scrollHeight;
      }
      isOver = find("#launch .badge.is-ended") !== null || live.source?.readyState === EventSource.OPEN;
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

// ---- Asking -------------------------------------------------------------------------------------------------------------------

async function post(path, content, { isQuiet = false } = {}) {
  const isJson = typeof content === "string";
  const headers = isJson ? { "content-type": "application/json" } : {};
  try {
    const answer = await fetch(path, { method: "POST", headers, body: isJson ? content : new URLSearchParams(content) });
    if (answer.status === 401) location.reload();
    if (!answer.ok && !isQuiet) tellProblem(await answer.text());
    return answer;
  } catch {
    if (!isQuiet) toast(body.dataset.lostContact);
    return null;
  }
}

async function fetchPart(path) {
  try {
    const answer = await fetch(path, { headers: { "hx-request": "true" } });
    return answer.ok ? await answer.text() : null;
  } catch { return null; }
}

find("#theme").addEventListener("click", () => {
  const isDark = getComputedStyle(document.documentElement).colorScheme === "dark";
  document.documentElement.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("theme", document.documentElement.dataset.theme);
});

writeTimes();
showPanel();
listen();
const output = find("#output");
if (output) followOutput(output);
