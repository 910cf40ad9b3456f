"""Pages of a score: verovio engraves MusicXML as SVG, and cairosvg makes a PDF of the pages."""

import io

from service.score.sheet import load

_A4_MM = (210, 297)
_OPTIONS = {
    "pageWidth": 10 * _A4_MM[0],  # tenths of a mm
    "pageHeight": 10 * _A4_MM[1],
    "scale": 100,
    "footer": "none",
    "breaks": "auto",
    "svgViewBox": True,
}
_ENDLESS = 60_000


def pages(musicxml: bytes, width: int | None = None) -> list[str]:
    """SVG of A4 pages, or of one page of this width, in tenths of a mm, and as high as needed.

    Raises:
        ValueError: verovio cannot read the document.
    """
    toolkit = load("verovio").toolkit()
    toolkit.setOptions(_OPTIONS)
    if width is not None:
        toolkit.setOptions({"pageWidth": width, "pageHeight": _ENDLESS, "adjustPageHeight": True})
    if not toolkit.loadData(musicxml.decode()):
        raise ValueError("this score cannot be engraved")
    return [toolkit.renderToSVG(page + 1) for page in range(toolkit.getPageCount())]


def pdf(musicxml: bytes) -> bytes:
    """The A4 pages as one PDF file."""
    cairosvg, pypdf = load("cairosvg"), load("pypdf")
    pixels = tuple(mm / 25.4 * 96 for mm in _A4_MM)
    writer = pypdf.PdfWriter()
    for page in pages(musicxml):
        width, height = pixels
        one = cairosvg.svg2pdf(bytestring=page.encode(), output_width=width, output_height=height)
        writer.append(io.BytesIO(one))
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()
