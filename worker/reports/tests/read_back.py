#!/usr/bin/env python3
"""Reads reports with libraries that are independent of the writers, and prints the contents as JSON.

    read_back.py FOLDER

reads every file in a folder, by its extension, and prints one object: {file name: content}. A file that is not valid in
its format ends the program with a message. Needs openpyxl, python-pptx, jsonschema and lxml from PyPI, and
pdftotext (poppler-utils) if the folder has a PDF file.

To add a format: a function here, and its line in READERS.
"""

import csv
import datetime
import io
import json
import pathlib
import posixpath
import re
import subprocess
import sys
import zipfile

try:
    import jsonschema
    import openpyxl
    import pptx
    from lxml import etree
except ImportError as error:
    sys.exit(f"{error}: the tests of report formats need `pip install openpyxl python-pptx jsonschema lxml`")

SCHEMA = json.loads(pathlib.Path(__file__).with_name("report.schema.json").read_text())
# The default limit of the library is too low for these tests.
csv.field_size_limit(1 << 24)


def plain(value):
    """A value as the test compares it: times in ISO 8601."""
    return value.isoformat() if isinstance(value, (datetime.date, datetime.datetime)) else value


def read_csv(data):
    text = data.decode("utf-8")
    assert not text.startswith("\ufeff"), "a byte order mark"
    lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert len({len(line) for line in lines}) == 1, "lines of different lengths"
    assert text.endswith("\r\n"), "the last line does not end with CRLF"
    return lines


def read_json(data):
    report = json.loads(data)
    jsonschema.validate(report, SCHEMA)
    return {"report": report, "text": data.decode("utf-8")}


def check_package(package):
    """Checks that a reader of Open Packaging Conventions finds every part: its type, its relationships, its XML."""
    names = package.namelist()
    assert len(set(names)) == len(names), "a part is there twice"
    assert names[0] == "[Content_Types].xml", "the types are not the first entry"
    types = etree.fromstring(package.read("[Content_Types].xml"))
    extensions = {entry.get("Extension") for entry in types if entry.tag.endswith("Default")}
    parts = {entry.get("PartName").lstrip("/") for entry in types if entry.tag.endswith("Override")}
    assert parts <= set(names), f"types of parts that are not there: {parts - set(names)}"
    related = {"[Content_Types].xml"}
    for name in names:
        extension = name.rsplit(".", 1)[-1]
        assert name == "[Content_Types].xml" or name in parts or extension in extensions, f"{name} has no type"
        if extension in ("xml", "rels"):
            root = etree.fromstring(package.read(name))
            assert extension == "rels" or name in parts or name == "[Content_Types].xml", f"{name} is only XML"
        if extension != "rels":
            continue
        related.add(name)
        folder = posixpath.dirname(posixpath.dirname(name))
        ids = [relation.get("Id") for relation in root]
        assert len(set(ids)) == len(ids), f"{name} has an id twice"
        for relation in root:
            if relation.get("TargetMode") == "External":
                continue
            target = relation.get("Target")
            # A target that begins with a slash is one from the root.
            target = posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
            assert target in names, f"{name} points to {target}, which is not there"
            related.add(target)
        owner = posixpath.join(folder, posixpath.basename(name)[: -len(".rels")])
        if owner in names:
            used = set(re.findall(rb'\br:(?:id|embed|link)="([^"]+)"', package.read(owner)))
            assert used <= {id.encode() for id in ids}, f"{owner} uses relationships that are not there"
    assert set(names) <= related, f"parts that nothing points to: {set(names) - related}"


def pages(sheet):
    """How many pages wide and high a sheet is printed; 0: as many as it needs."""
    fits = sheet.sheet_properties.pageSetUpPr
    if not (fits and fits.fitToPage):
        return None
    return [1 if number is None else number for number in (sheet.page_setup.fitToWidth, sheet.page_setup.fitToHeight)]


def read_xlsx(data):
    package = zipfile.ZipFile(io.BytesIO(data))
    check_package(package)
    book = openpyxl.load_workbook(io.BytesIO(data))
    sheets = []
    for sheet in book:
        cells = [[plain(cell.value) for cell in row] for row in sheet.iter_rows()]
        formulas = [cell.coordinate for row in sheet.iter_rows() for cell in row if cell.data_type == "f"]
        links = {
            cell.coordinate: cell.hyperlink.target + (f"#{cell.hyperlink.location}" if cell.hyperlink.location else "")
            for row in sheet.iter_rows()
            for cell in row
            if cell.hyperlink and cell.hyperlink.target
        }
        formats = {cell.coordinate: cell.number_format for row in sheet.iter_rows() for cell in row}
        sheets.append({
            "name": sheet.title,
            "cells": cells,
            "formulas": formulas,
            "links": links,
            "formats": {place: form for place, form in formats.items() if form != "General"},
            "frozen": sheet.freeze_panes,
            "pages": pages(sheet),
            "tables": [{"range": table.ref, "columns": table.column_names} for table in sheet.tables.values()],
            "filter": sheet.auto_filter.ref,
        })
    for table in (table for sheet in book for table in sheet.tables.values()):
        assert len({name.lower() for name in table.column_names}) == len(table.column_names), "a column twice"
    charts = [name for name in package.namelist() if name.startswith("xl/charts/chart")]
    space = {"c": "http://schemas.openxmlformats.org/drawingml/2006/chart"}
    references = [
        [f.text for f in etree.fromstring(package.read(name)).iterfind(".//c:ser/c:val//c:f", space)] for name in charts
    ]
    properties = book.properties
    return {
        "sheets": sheets,
        "charts": references,
        "title": properties.title,
        "created": plain(properties.created),
    }


def decoded(value):
    """Decodes ST_Xstring, which python-pptx leaves as it is."""
    return re.sub(r"_x([0-9A-Fa-f]{4})_", lambda code: chr(int(code[1], 16)), value)


def read_chart(chart):
    book = openpyxl.load_workbook(io.BytesIO(chart.part.chart_workbook.xlsx_part.blob))
    sheet = book["Sheet1"]
    plot = chart.plots[0]
    return {
        "type": str(chart.chart_type).split(" ")[0],
        "days": [str(day) for day in plot.categories],
        "series": [{"name": decoded(series.name), "values": list(series.values)} for series in plot.series],
        "workbook": [[plain(cell.value) for cell in row] for row in sheet.iter_rows()],
        "axis": chart.category_axis.axis_title.text_frame.text if chart.category_axis.has_title else None,
        "unit": chart.value_axis.axis_title.text_frame.text if chart.value_axis.has_title else None,
        "legend": chart.has_legend,
    }


def read_pptx(data):
    check_package(zipfile.ZipFile(io.BytesIO(data)))
    deck = pptx.Presentation(io.BytesIO(data))
    slides = []
    for slide in deck.slides:
        shapes = list(slide.shapes)
        ids = [shape.shape_id for shape in shapes]
        assert len(set(ids)) == len(ids), "two shapes with one id"
        for shape in shapes:
            inside = shape.left + shape.width <= deck.slide_width and shape.top + shape.height <= deck.slide_height
            assert shape.left >= 0 and shape.top >= 0 and inside, f"{shape.name} leaves its slide"
        tables = [shape.table for shape in shapes if shape.has_table]
        runs = [
            run
            for table in tables
            for cell in table.iter_cells()
            for paragraph in cell.text_frame.paragraphs
            for run in paragraph.runs
        ]
        slides.append({
            "title": slide.shapes.title.text_frame.text,
            "texts": [s.text_frame.text for s in shapes if s.has_text_frame and s != slide.shapes.title],
            "tables": [[[cell.text for cell in row.cells] for row in table.rows] for table in tables],
            "links": [run.hyperlink.address for run in runs if run.hyperlink.address],
            "charts": [read_chart(shape.chart) for shape in shapes if shape.has_chart],
        })
    return {"size": [deck.slide_width, deck.slide_height], "slides": slides, "title": deck.core_properties.title}


def read_pdf(data):
    text = subprocess.run(["pdftotext", "-layout", "-", "-"], input=data, stdout=subprocess.PIPE, check=True)
    return text.stdout.decode("utf-8")


READERS = {"csv": read_csv, "json": read_json, "xlsx": read_xlsx, "pptx": read_pptx, "pdf": read_pdf}


def main():
    read = {}
    for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
        try:
            read[path.name] = READERS[path.suffix[1:]](path.read_bytes())
        except Exception as error:
            raise SystemExit(f"{path.name}: {type(error).__name__}: {error}") from error
    json.dump(read, sys.stdout)


main()
