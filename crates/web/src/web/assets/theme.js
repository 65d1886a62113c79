// Before the page is drawn: the theme its reader chose, if any. Without one the system's counts.
const chosenTheme = localStorage.getItem("theme");
if (chosenTheme) document.documentElement.dataset.theme = chosenTheme;
// Only the keyboards of one maker have the key ⌘.
if (/Mac|iPhone|iPad/.test(navigator.platform)) document.documentElement.classList.add("is-mac");
