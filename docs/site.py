"""Pages that mkdocs cannot find: the README, the notebook, each chapter of the claims, and both references.

The document of the claims, one file for readers of the repository, becomes a page for each of its chapters. Links from
pages to the code become links into the reference; links to tests and other files lead to the repository. Formulas are
rendered by KaTeX, whose files ``make docs`` fetches into build/katex: the site asks for nothing elsewhere.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer import Context
from typer.cli import get_docs_for_click
from typer.main import get_command

import conv2attn
from conv2attn.cli import app

ROOT = Path(__file__).parents[1]
PACKAGE = "conv2attn"
REPOSITORY = "https://github.com/conv2attn/conv2attn"  # README's links are absolute, so that PyPI shows them
KATEX = ROOT / "build" / "katex" / "node_modules" / "katex" / "dist"
FORMULAS = """document.querySelectorAll(".arithmatex").forEach((element) => {
  const formula = element.textContent.trim();
  const displayMode = formula.startsWith("\\\\[");
  katex.render(formula.slice(2, -2), element, { displayMode, throwOnError: false });
});
document.fonts.ready.then(() => document.querySelectorAll("span.arithmatex").forEach((element) => {
  const widths = [...element.querySelectorAll(".base")].map((part) => part.offsetWidth);
  element.classList.toggle("long", Math.max(...widths) > element.closest("p, li, td, th, h1, h2, h3").clientWidth);
})).then(() => document.querySelectorAll("div.arithmatex, .arithmatex.long, .katex-display").forEach((element) => {
  if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
}));
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
new MutationObserver(() => {
  document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach((wrap) => wrap.tabIndex = 0);
  document.querySelectorAll(".md-code__nav:not([aria-label])").forEach((nav, number) =>
    nav.setAttribute("aria-label", `Code ${number + 1}`));
}).observe(document.body, { childList: true, subtree: true });
"""
CLAIMS = "theorem.md"
LONGEST = 25_000  # characters of a page, which on a telephone is 14,000 pixels high
_CLAIM = re.compile(r'^#+ ([\w-]+)$|<a id="([\w-]+)">', re.MULTILINE)
STYLE = """[data-md-color-scheme="default"] {
  --md-code-hl-comment-color: #565e66; --md-code-hl-operator-color: #565e66;
}
[data-md-color-scheme="slate"] { --md-code-hl-comment-color: #aab2bd; --md-code-hl-operator-color: #aab2bd; }
.md-typeset p a, .md-typeset li a, .md-typeset td a { text-decoration: underline; }
.md-copyright, .md-copyright a { color: #ffffff !important; }
.md-typeset img { border-radius: 4px; }
[data-md-color-scheme="slate"] .md-typeset img { filter: brightness(0.88); }
.katex { position: relative; }
.katex-display, .arithmatex.long { display: block; overflow: auto hidden; padding: 0.2em 0; }
"""
_LINK = re.compile(r"(!?)\[([^\]]+)\]\(([^)\s]+)\)")


def rooms() -> dict[str, list[str]]:
    """The modules of each folder of the package."""
    found: dict[str, list[str]] = {}
    for top in ("convert", "learn", "proofs", "show"):
        for path in sorted((ROOT / top).rglob("*.py")):
            room, name = path.relative_to(ROOT).parent.as_posix(), path.stem
            if not room.startswith("proofs/claims/"):  # the claims have their own pages, with their fields filled
                found.setdefault(room, []).append(name)
    return found


def reference(room: str, modules: list[str]) -> str:
    """A page of the reference: a folder's modules."""
    dotted = f"{PACKAGE}.{room.replace('/', '.')}"
    names = [dotted if name == "__init__" else f"{dotted}.{name}" for name in modules]
    return f"# {room}\n\n" + "\n\n".join(f"::: {name}" for name in names) + "\n"


def public_names() -> list[str]:
    """The public names as a table, each with a link to its module's page and the first sentence of its docstring."""
    rows = ["| name | purpose |", "| --- | --- |"]
    for name in sorted(set(conv2attn.__all__) - {"__version__"}, key=str.lower):
        public = getattr(conv2attn, name)
        module, purpose = public.__module__, str(public.__doc__).partition("\n")[0]
        room = module.removeprefix(f"{PACKAGE}.").rpartition(".")[0].replace(".", "/")
        rows.append(f"| [`{name}`]({room}/index.md#{module}.{public.__qualname__}) | {purpose} |")
    return rows


def chapters() -> dict[str, str]:
    """The pages of the document of the claims: all before the first chapter, and each chapter; of a long one, two."""
    first, *others = re.split(r"^#(?=# )", (ROOT / "docs" / CLAIMS).read_text(encoding="utf-8"), flags=re.MULTILINE)
    pages = {CLAIMS: first}
    for chapter in others:
        title, *sections = re.split(r"^#(?=## )", chapter, flags=re.MULTILINE)
        name = title.partition("\n")[0].removeprefix("# ")
        file = f"claims-{name.lower().replace(' ', '-')}"
        is_long = len(chapter) > LONGEST
        here = [
            section for n, section in enumerate(sections) if not is_long or len("".join(sections[:n])) < LONGEST / 2
        ]
        pages[f"{file}.md"] = title + "".join(here)
        if is_long:
            pages[f"{file}-2.md"] = f"# {name}, continued\n\n" + "".join(sections[len(here) :])
    return pages


def linked_claims(markdown: str, pages: dict[str, str]) -> str:
    """Points links to claims at the page of their chapter."""
    places = {name or lemma: page for page, text in pages.items() for name, lemma in _CLAIM.findall(text)}
    return re.sub(
        rf"\((?:{CLAIMS})?#([\w-]+)\)", lambda m: f"({places[m[1]]}#{m[1]})" if m[1] in places else m[0], markdown
    )


def tutorial() -> str:
    """The notebook as a page: its text, its code and what that printed."""
    parts = []
    for cell in json.loads((ROOT / "docs" / "tutorial.ipynb").read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {"text/plain": output.get("text", ())})
            plain = "".join(data["text/plain"]).rstrip()
            parts.append("".join(data["text/html"]) if "text/html" in data else f"```text\n{plain}\n```")
    return "\n\n".join(parts) + "\n"


def commands() -> str:
    """The commands with their arguments and options, as Typer writes them; a command's options behind a line."""
    command = get_command(app)
    _, *sections = re.split(
        r"^(?=## )",
        get_docs_for_click(obj=command, ctx=Context(command, info_name=PACKAGE), name=PACKAGE),
        flags=re.MULTILINE,
    )
    folded_options = (
        re.sub(
            r"^\*\*Options\*\*:\n(.*)",
            r'<details markdown="1"><summary>Options</summary>\n\1\n</details>\n',
            section,
            flags=re.MULTILINE | re.DOTALL,
        )
        for section in sections
    )
    return "# Commands\n\n`conv2attn --help` lists the commands, `conv2attn COMMAND --help` prints this.\n\n" + "".join(
        folded_options
    )


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the first page and the reference."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    home = re.sub(rf"\]\({REPOSITORY}/(blob|tree|raw)/main/", "](../", readme).replace("](../docs/", "](")
    home = re.sub(rf'(src|srcset)="{REPOSITORY}/raw/main/docs/', r'\1="', home)
    files.append(File.generated(config, "index.md", content=home))
    files.append(File.generated(config, "tutorial.md", content=tutorial()))
    files.append(File.generated(config, "commands.md", content=commands()))
    for name, text in chapters().items():
        if name != CLAIMS:
            files.append(File.generated(config, name, content=text))
    listed = [
        "# Reference",
        "",
        "`import conv2attn as c2a` gives these names:",
        "",
        *public_names(),
        "",
        "All modules, for contributors:",
        "",
    ]
    for room, modules in rooms().items():
        listed.append(f"- [{room}]({room}/index.md)")
        files.append(File.generated(config, f"reference/{room}/index.md", content=reference(room, modules)))
    files.append(File.generated(config, "reference/index.md", content="\n".join(listed) + "\n"))
    for path in (KATEX / "katex.min.js", KATEX / "katex.min.css", *sorted(KATEX.glob("fonts/*.woff2"))):
        name = f"katex/{path.relative_to(KATEX).as_posix()}"
        files.append(File.generated(config, name, abs_src_path=str(path)))
    files.append(File.generated(config, "katex/formulas.js", content=FORMULAS))
    files.append(File.generated(config, "katex/formulas.css", content=STYLE))
    return files


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Warns of a formula that is still LaTeX between dollar signs; a strict build fails with it."""
    text = re.sub(r"<(code|pre)\b.*?</\1>", "", html, flags=re.DOTALL)
    if (raw := re.search(r"\$[^$<\n]+\$", text)) is not None:
        logging.getLogger("mkdocs.hooks").warning(
            "%s has a formula that is not rendered: %s", page.file.src_uri, raw[0]
        )
    return html


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Points links to claims at their chapters, and links to the code at the reference."""
    pages = chapters()
    markdown = markdown.replace("](tutorial.ipynb)", "](tutorial.md)")
    markdown = linked_claims(pages.get(page.file.src_uri, markdown), pages)
    here = PurePosixPath(page.file.src_uri).parent

    def placed(found: re.Match[str]) -> str:
        image, text, target = found.groups()
        if image or "://" in target or not target.startswith("../") or here.parts:
            return found[0]
        path = target.removeprefix("../").rstrip("/")
        room = path if (ROOT / path).is_dir() else str(PurePosixPath(path).parent)
        if files.get_file_from_path(f"reference/{room}/index.md") is None:
            return f"[{text}]({REPOSITORY}/blob/main/{path})"
        module = "" if room == path else f"#{PACKAGE}.{path.removesuffix('.py').replace('/', '.')}"
        return f"[{text}](reference/{room}/index.md{module if path.endswith('.py') else ''})"

    return _LINK.sub(placed, markdown)
