"""The decision records in docs/adr have one form, and their table lists all of them."""

import re
from dataclasses import dataclass
from pathlib import Path

ADRS = Path(__file__).parents[1] / "docs" / "adr"
README = ADRS / "README.md"
PAGES = sorted(page for page in ADRS.glob("*.md") if page != README)

TITLE = re.compile(r"\A# (\d+)\. (.+)\n")
STATUS = re.compile(r"^Status: (.+)$", re.MULTILINE)
SECTION = re.compile(r"^## (.+)\n\s*(?!#)\S", re.MULTILINE)
ROW = re.compile(r"^\| \[(\d{4})\]\((.+?)\) \| (.+?) \| (.+) \|$", re.MULTILINE)
LINK = re.compile(r"\[(\d{4})\]\((.+?)\)")

DATE = r"\(\d{4}-\d\d-\d\d\)"
LINKS = rf"{LINK.pattern}(?:(?:, | and ){LINK.pattern})*"
FORM = re.compile(
    rf"(?:accepted {DATE}|superseded by {LINKS})(?:, revised {DATE})?(?:, amended by {LINKS})?"
)

SECTIONS = ("Context", "Decision", "Reasons", "Considered", "Consequences")


@dataclass(frozen=True)
class Adr:
    """A decision record: the name of its file, and its first lines."""

    file: str
    number: int
    title: str
    status: str
    text: str

    @property
    def slug(self) -> str:
        """The title as file names have it."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def read(page: Path) -> Adr:
    text = page.read_text(encoding="utf-8")
    title, statuses = TITLE.match(text), STATUS.findall(text)
    assert title, f"{page.name}: the first line should be `# NUMBER. TITLE`"
    assert len(statuses) == 1, f"{page.name}: expected one line `Status: …`"
    return Adr(page.name, int(title[1]), title[2], statuses[0], text)


def test_a_file_has_the_number_and_the_title_of_its_record() -> None:
    records = [read(page) for page in PAGES]
    assert [adr.file for adr in records] == [f"{adr.number:04}-{adr.slug}.md" for adr in records]


def test_a_record_has_context_and_decision_in_the_usual_order() -> None:
    for adr in map(read, PAGES):
        found = SECTION.findall(adr.text)
        assert {"Context", "Decision"} <= set(found), adr.file
        assert found == [section for section in SECTIONS if section in found], adr.file
        assert len(found) == adr.text.count("\n## "), f"{adr.file}: a section is empty"


def test_a_status_names_later_records_that_exist() -> None:
    for adr in map(read, PAGES):
        assert FORM.fullmatch(adr.status), f"{adr.file}: {adr.status}"
        for number, file in LINK.findall(adr.status):
            later = ADRS / file
            assert later.is_file(), f"{adr.file}: {file}"
            assert read(later).number == int(number) > adr.number, adr.file


def test_the_table_has_every_record_with_its_title_and_status() -> None:
    rows = ROW.findall(README.read_text(encoding="utf-8"))
    records = [read(page) for page in PAGES]
    assert rows == [(f"{adr.number:04}", adr.file, adr.title, adr.status) for adr in records]


def test_numbers_are_used_once() -> None:
    numbers = [read(page).number for page in PAGES]
    assert len(set(numbers)) == len(numbers)
