
// ---- The chat -----------------------------------------------------------------------------------------------------------------

// `isAtEnd`: the reader sees the end of the list. It stays there while the list grows.
const chats = { unsent: new Map(), isFetching: false, isAgain: false, isAtEnd: true, top: 0 };
const chatOf = () => find("[data-chat]");
// The address of a part of a chat, or of a deed in it.
const pathOf = (chat, kind, rest = "") => `${root}/ui/${kind}/projects/${chat.replace("/", "/agents/")}/chat${rest}`;
const sentIn = (chat) => findAll(".message:not(.is-unsent)", chat);

// What is sent while the agent is not there waits for it, so only a refusal disables the button.
function showStanding() {
  const chat = chatOf();
  if (!chat) return;
  const button = find("#send", chat);
  if (button) button.disabled = !find("[data-may-say]", chat);
  find(".bar .avatar", chat).classList.toggle("is-live", find("[data-is-ready]", chat) !== null);
}

const NEAR_END = 80;
const isNearEnd = (list) => list.scrollHeight - list.scrollTop - list.clientHeight < NEAR_END;

function scrollDown(chat) {
  const list = find(".messages", chat);
  list.scrollTop = list.scrollHeight;
  chats.isAtEnd = true;
  noteEnd(chat);
}

// The reader sees the end of the list, and so the newest message.
function noteEnd(chat) {
  find("[data-to-end]", chat).hidden = true;
  const last = sentIn(chat).at(-1);
  if (last && !document.hidden) localStorage.setItem(`read-${chat.dataset.chat}`, last.dataset.id);
}
document.addEventListener("visibilitychange", () => { if (chatOf() && chats.isAtEnd) noteEnd(chatOf()); });

function beginChat(chat) {
  showStanding();
  if (!chat.dataset.isBegun) {
    chat.dataset.isBegun = "yes";
    for (const [id, unsent] of chats.unsent) if (unsent.chat === chat.dataset.chat) showUnsent(chat, id, unsent.content);
    showDays(chat);
    showNewLine(chat);
    const list = find(".messages", chat);
    // A list that grew is left by scrolling up only.
    list.addEventListener("scroll", () => {
      chats.isAtEnd = isNearEnd(list) || (chats.isAtEnd && list.scrollTop >= chats.top);
      chats.top = list.scrollTop;
      if (chats.isAtEnd) noteEnd(chat);
    });
    find("[data-to-end]", chat).addEventListener("click", () => scrollDown(chat));
    const size = new ResizeObserver(() => { if (chats.isAtEnd) scrollDown(chat); });
    size.observe(list);
    size.observe(list.firstElementChild);
    const field = find("textarea", chat);
    if (field) field.value = localStorage.getItem(draftKey(chat)) ?? "";
  }
  scrollDown(chat);
  // What was said while the panel was on its way.
  fetchMessages();
}

function fitMessages(chat) {
  showDays(chat);
  writeTimes();
  addCopyButtons();
}

// A line before the first message of each day, in the zone of the reader.
function showDays(chat) {
  let last = "";
  for (const message of findAll(".message", chat)) {
    const time = find("time", message);
    const day = dayText(time ? new Date(time.dateTime) : new Date());
    const isNew = message.previousElementSibling?.matches(".is-new");
    const place = isNew ? message.previousElementSibling : message;
    const line = place.previousElementSibling?.matches(".day") ? place.previousElementSibling : null;
    if (day === last) line?.remove();
    else if (line) { if (line.textContent !== day) line.textContent = day; }
    else place.before(lineOf(day, "day"));
    last = day;
  }
  const end = find(".messages > ol", chat).lastElementChild;
  if (end?.matches(".day")) end.remove();
}

function dayText(at) {
  const ahead = daysAhead(at);
  const text = ahead >= -1 ? relativeText(ahead, "day") : date.format(at);
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function lineOf(text, className) {
  const line = document.createElement("li");
  line.className = className;
  line.textContent = text;
  return line;
}

// A line before the first message of others that this browser has not shown.
function showNewLine(chat) {
  const read = localStorage.getItem(`read-${chat.dataset.chat}`);
  const messages = sentIn(chat);
  const at = messages.findIndex((message) => message.dataset.id === read);
  const first = messages.slice(at + 1).find((message) => !message.matches(".is-mine"));
  if (read && first) first.before(find(".is-new", chat) ?? lineOf(chat.dataset.new, "day is-new"));
}

// One draft for each chat. The avatars of agents with a draft are marked.
const draftKey = (chat) => `draft-${chat.dataset.chat}`;
function keepDraft(key, text) {
  if (text) localStorage.setItem(key, text);
  else localStorage.removeItem(key);
  showDrafts();
}
function showDrafts() {
  for (const mark of findAll("[data-draft-of]")) mark.hidden = !localStorage.getItem(`draft-${mark.dataset.draftOf}`);
}
addEventListener("storage", showDrafts);
document.addEventListener("input", (event) => {
  const chat = event.target.id === "say" && event.target.closest("[data-chat]");
  if (chat) keepDraft(draftKey(chat), event.target.value);
});

// Messages after the last one that is here, in the server's order. One fetch at a time: none is shown twice, or before another.
async function fetchMessages() {
  const chat = chatOf();
  if (!chat) return;
  if (chats.isFetching) { chats.isAgain = true; return; }
  chats.isFetching = true;
  try {
    for (let hasMore = true; hasMore && chat.isConnected;) {
      const list = find(".messages > ol", chat);
      const last = sentIn(chat).at(-1)?.dataset.id;
      const answer = await fetch(pathOf(chat.dataset.chat, "parts", `/messages${last ? `?after=${encodeURIComponent(last)}` : ""}`));
      if (answer.status === 404 && last) { reopenChat(chat); break; }
      if (!answer.ok) break;
      hasMore = answer.headers.get("has-more") === "true" && Boolean(last);
      const holder = document.createElement("template");
      holder.innerHTML = await answer.text();
      const n = sentIn(chat).length;
      for (const message of findAll(".message", holder.content)) {
        document.getElementById(message.id)?.remove();
        chats.unsent.delete(message.dataset.id);
        list.insertBefore(message, find(".is-unsent", list));
      }
      fitMessages(chat);
      if (chats.isAtEnd && !document.hidden) noteEnd(chat);
      else if (sentIn(chat).length > n) {
        showNewLine(chat);
        find("[data-to-end]", chat).hidden = chats.isAtEnd;
      }
    }
  } catch { /* the next news, or the next contact, fetches them */ } finally {
    chats.isFetching = false;
  }
  if (chats.isAgain) { chats.isAgain = false; fetchMessages(); }
}

// The last message that is here was forgotten by the daemon: the chat begins anew.
function reopenChat(chat) {
  if (chat.closest("#panel")) htmx.ajax("GET", pathOf(chat.dataset.chat, "parts"), { target: "#panel" });
  else location.reload();
}

document.addEventListener("click", async (event) => {
  if (!event.target.closest("[data-earlier]")) return;
  const chat = chatOf();
  const list = find(".messages", chat);
  const answer = await fetch(pathOf(chat.dataset.chat, "parts", `/messages?before=${encodeURIComponent(find(".message", list)?.dataset.id)}`));
  if (!answer.ok) return;
  const height = list.scrollHeight;
  find("ol", list).insertAdjacentHTML("afterbegin", await answer.text());
  fitMessages(chat);
  list.scrollTop += list.scrollHeight - height;
  if (answer.headers.get("has-more") !== "true") event.target.remove();
});

function showUnsent(chat, id, content) {
  const message = find("#own-message", chat).content.firstElementChild.cloneNode(true);
  message.classList.add("is-unsent");
  message.id = message.dataset.id = id;
  const prose = document.createElement("div");
  prose.className = "prose keep-lines";
  prose.dir = "auto";
  prose.textContent = content;
  message.append(prose);
  find(".messages > ol", chat).append(message);
}

function say(chat, content) {
  const id = `msg_${crypto.randomUUID?.() ?? [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16)).join("")}`;
  showUnsent(chat, id, content);
  showDays(chat);
  scrollDown(chat);
  chats.unsent.set(id, { chat: chat.dataset.chat, content });
  sendUnsent();
}

// The text of a message that was refused is a draft again.
function giveBack(chat, refused) {
  const field = chatOf()?.dataset.chat === chat && find("#say");
  const content = [refused, field?.value].filter(Boolean).join("\n\n");
  keepDraft(`draft-${chat}`, content);
  if (field) field.value = content;
}

// One after another, in the order they were written, also when their panel is closed; the id makes a repetition harmless.
let isSending = false;
async function sendUnsent() {
  if (isSending) return;
  isSending = true;
  try {
    while (chats.unsent.size > 0) {
      const [id, { chat, content }] = chats.unsent.entries().next().value;
      const answer = await post(pathOf(chat, "do", "/messages"), JSON.stringify({ id, content }), { isQuiet: true });
      const isRefused = answer && [400, 403, 404, 409, 413, 422].includes(answer.status);
      if (answer?.ok || isRefused) {
        chats.unsent.delete(id);
        if (isRefused) {
          document.getElementById(id)?.remove();
          if (chatOf()) showDays(chatOf());
          giveBack(chat, content);
          tellProblem(await answer.text(), find("[data-say]"));
        }
      } else {
        const note = find(".not-sent", document.getElementById(id) ?? body);
        if (note) note.hidden = false;
        await new Promise((resolve) => setTimeout(resolve, 2000));
      }
    }
  } finally {
    isSending = false;
  }
  fetchMessages();
}

addEventListener("beforeunload", (event) => {
  if (chats.unsent.size > 0 || find("[data-is-written]")) event.preventDefault();
});

document.addEventListener("submit", (event) => {
  const form = event.target.closest("[data-say]");
  if (!form) return;
  event.preventDefault();
  const field = find("textarea", form);
  if (field.value.trim() === "" || find("#send", form).disabled) return;
  say(chatOf(), field.value);
  field.value = "";
  keepDraft(draftKey(chatOf()), "");
  field.focus();
});
// Enter sends where there is a keyboard; on touch it breaks the line, and the button sends. While a word is being composed, Enter
// ends that; Safari tells that by the code 229 only.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.isComposing || event.keyCode === 229 || event.shiftKey) return;
  const isTouch = matchMedia("(pointer: coarse)").matches;
  const form = event.target.closest?.("[data-say]");
  if (!form || (isTouch && !event.ctrlKey && !event.metaKey)) return;
  event.preventDefault();
  form.requestSubmit();
});
