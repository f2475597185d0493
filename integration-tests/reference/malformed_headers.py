"""A corpus of malformed files for the parsers of connectors/formats: each is a good small file with one fault, and
`messages.json` has a part of what the parser must say of it. The good files are those of formats_reference.py.

Made with Python 3.11 alone.
Usage: python -P integration-tests/reference/malformed_headers.py
"""

import gzip
import json
import struct
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "connectors/formats/tests/fixtures"
OUT = ROOT / "connectors/formats/tests/malformed"
MESSAGES = {}


def write(name: str, content: bytes, message: str) -> None:
    path = OUT / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    MESSAGES[name] = message


def patched(content: bytes, at: int, kind: str, *values) -> bytes:
    content = bytearray(content)
    struct.pack_into(kind, content, at, *values)
    return bytes(content)


def nifti_one() -> bytes:
    """2×2×2×2 int16, sform and qform of 2 mm, TR 2 s."""
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 4, 2, 2, 2, 2, 1, 1, 1)
    struct.pack_into("<hh", header, 70, 4, 16)
    struct.pack_into("<8f", header, 76, 1, 2, 2, 2, 2, 0, 0, 0)
    struct.pack_into("<3f", header, 108, 352, 1, 0)
    header[123] = 10
    struct.pack_into("<2h", header, 252, 1, 1)
    struct.pack_into("<12f", header, 280, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2, 0)
    header[344:348] = b"n+1\0"
    return bytes(header) + struct.pack("<16h", *range(16))


def nifti() -> None:
    good = nifti_one()
    for name, content, message in [
        ("size_of_header", patched(good, 0, "<i", 347), "sizeof_hdr at byte 0 is 347"),
        ("magic", patched(good, 344, "4s", b"n+3\0"), "its magic is \"n+3\\x00\""),
        ("magic_of_a_pair", patched(good, 344, "4s", b"ni1\0"), ".hdr/.img pair"),
        ("no_dimension", patched(good, 40, "<h", 0), "dim[0], the number of dimensions, is 0"),
        ("eight_dimensions", patched(good, 40, "<h", 8), "dim[0], the number of dimensions, is 8"),
        ("negative_dimension", patched(good, 42, "<h", -2), "dim[1] is -2"),
        ("fifth_dimension", patched(good, 40, "<6h", 5, 2, 2, 2, 1, 2), "has a real dimension 5"),
        ("colours", patched(good, 70, "<h", 128), "colours (RGB24)"),
        ("unknown_type", patched(good, 70, "<h", 3), "of an unknown type"),
        ("voxels_in_the_header", patched(good, 108, "<f", 100), "voxels of a single file begin at byte 352"),
        ("voxels_nowhere", patched(good, 108, "<f", float("nan")), "header field vox_offset at byte 108"),
        ("intercept", patched(good, 116, "<f", float("inf")), "header field scl_inter at byte 116"),
        ("singular_sform", patched(good, 280, "<4f", 0, 0, 0, 0), "header field srow_x at byte 280"),
        ("mirrored", patched(good, 280, "<f", -2), "disagree about left and right"),
        ("cut_in_the_header", good[:200], "ends at byte 200, inside the header"),
        ("cut_in_a_volume", good[:370], "ends at byte 370, inside volume 2 of 2"),
        ("a_page", b"<html>404 not found</html>", "sizeof_hdr at byte 0"),
        ("empty", b"", "it has only 0 bytes"),
    ]:
        write(f"nifti/{name}.nii", content, message)
    packed = gzip.compress(good, mtime=0)
    write("nifti/cut.nii.gz", packed[:-9], "the file is cut short")
    write("nifti/checksum.nii.gz", patched(packed, len(packed) - 8, "<I", 7), "damaged gzip data")
    write("nifti/rubbish_after.nii.gz", packed + b"more", "rubbish after the end of the gzip stream")
    write("nifti/not_gzip.nii.gz", good, "not a gzip file although its name ends in .gz")
    two = bytearray(544)
    struct.pack_into("<i", two, 0, 540)
    two[4:12] = b"n+2\0\r\n\x1a\n"
    struct.pack_into("<hh", two, 12, 16, 32)
    struct.pack_into("<8q", two, 16, 3, 2**40, 2**40, 2, 1, 1, 1, 1)
    struct.pack_into("<q", two, 168, 544)
    write("nifti/huge.nii", bytes(two), "is too large")
    write("nifti/text_mode.nii", bytes(two).replace(b"\r\n", b"\n\n", 1), "damaged, as by a transfer in text mode")


def mgh() -> None:
    good = (FIXTURES / "mgh/volume_i2.mgh").read_bytes()
    for name, content, message in [
        ("version", patched(good, 0, ">i", 7), "header field version at byte 0"),
        ("little_endian", good[:4][::-1] + good[4:], "it is 16777216, but MGH has version 1"),
        ("no_width", patched(good, 4, ">i", 0), "width is 0"),
        ("negative_frames", patched(good, 16, ">i", -1), "frames is -1"),
        ("huge", patched(good, 4, ">4i", *[2**31 - 1] * 4), "is too large"),
        ("type", patched(good, 20, ">i", 2), "its code 2 is not one of"),
        ("spacing", patched(good, 30, ">f", float("nan")), "goodRASFlag is set but spacing"),
        ("repetition_time", patched(good, 284 + 240, ">f", 2.0), "stored in seconds?"),
        ("cut_in_the_header", good[:100], "ends at byte 100, inside the header"),
        ("cut_in_a_frame", good[:500], "ends at byte 500, inside"),
    ]:
        write(f"mgh/{name}.mgh", content, message)
    write("mgh/not_gzip.mgz", good, "not a gzip file although its name ends in .gz or .mgz")


def gifti() -> None:
    good = (FIXTURES / "gifti/series_base64_little.func.gii").read_text()
    for name, old, new, message in [
        ("no_end", "</GIFTI>", "", "the file is cut short"),
        ("crossed_tags", "</Data></DataArray>", "</DataArray></Data>", "not well-formed XML"),
        ("another_root", "GIFTI", "CIFTI", "the document is not GIFTI"),
        ("count", 'Arrays="3"', 'Arrays="4"', "it says 4 array(s) and has 3"),
        ("type", "NIFTI_TYPE_FLOAT32", "NIFTI_TYPE_COMPLEX64", "is no integer or float type"),
        ("encoding", "Base64Binary", "Base85", "its Encoding 'Base85' is unknown"),
        ("external", "Base64Binary", "ExternalFileBinary", "its numbers lie in another file"),
        ("endian", "LittleEndian", "MixedEndian", "its Endian 'MixedEndian' is unknown"),
        ("order", "RowMajorOrder", "Diagonal", "its ArrayIndexingOrder 'Diagonal' is unknown"),
        ("dimension", 'Dim0="7"', 'Dim0="8"', "not the 8 of its dimensions [8]"),
        ("huge_dimension", 'Dim0="7"', f'Dim0="{2**62}"', "are too large"),
        ("no_dimension", 'Dim0="7"', "", "it has no attribute Dim0"),
        ("attribute_twice", 'Dim0="7"', 'Dim0="7" Dim0="7"', "duplicated attribute"),
        ("entity", "<Value>800", "<Value>&loop;", "an unknown entity"),
        ("base64", "<Data>", "<Data>*", "it is not base 64"),
        ("inflate", "Base64Binary", "GZipBase64Binary", "damaged compressed data"),
    ]:
        assert old in good, old
        write(f"gifti/{name}.gii", good.replace(old, new).encode(), message)
    write("gifti/empty.gii", b"", "no XML element")
    write("gifti/bytes.gii", bytes(range(256)), "gifti")


def cifti() -> None:
    good = (FIXTURES / "cifti/series.dtseries.nii").read_bytes()
    for name, content, message in [
        ("intent", patched(good, 504, "<i", 0), "is not of CIFTI"),
        ("dimensions", patched(good, 16, "<q", 5), "CIFTI of two dimensions has 6 1 1 1 1"),
        ("points", patched(good, 56, "<q", 6), "but the XML has 5 and 9"),
        ("no_extension", patched(good, 540, "<b", 0), "it has no CIFTI extension"),
        ("size_of_extension", patched(good, 544, "<i", 7), "the extension's size is 7"),
        ("long_extension", patched(good, 544, "<i", 2**30), f"the extension's size is {2**30}"),
        ("code_of_extension", patched(good, 548, "<i", 6), "it has no CIFTI extension"),
        ("cut_in_the_xml", good[:900], "ends at byte 900, inside the header's extensions"),
        ("cut_in_the_values", good[:-10], "inside"),
    ]:
        write(f"cifti/{name}.dtseries.nii", content, message)
    for name, old, new, message in [
        ("version", b'Version="2.0"', b'Version="1.0"', "its version is '1.0', not 2"),
        ("offset", b'IndexOffset="4"', b'IndexOffset="5"', "its IndexOffset is 5"),
        ("count_of_model", b'IndexCount="4"', b'IndexCount="3"', "its IndexCount is 3, and 4 are listed"),
        ("vertex", b">0 2 3 9<", b">0 2 2 9<", "the vertex 2 is there twice"),
        ("voxel", b"2 3 4<", b"2 3 9<", "lies outside the volume"),
        ("volume", b'"3,4,5"', b'"3,4 ,"', "not three"),
        ("unit", b'"SECOND"', b'"MINUTE"', "its SeriesUnit 'MINUTE' is unknown"),
        ("parcels", b"INDEX_TYPE_SERIES", b"INDEX_TYPE_PARCEL", "only dense series and dense scalars"),
        ("not_closed", b"</CIFTI>", b"<!CIFTI>", "XML"),
    ]:
        assert old in good and len(old) == len(new), old
        write(f"cifti/{name}.dtseries.nii", good.replace(old, new), message)


def npy() -> None:
    good = (FIXTURES / "npy/f4_le.npy").read_bytes()
    for name, content, message in [
        ("magic", b"PK\x03\x04" + good[4:], "not \\x93NUMPY"),
        ("version", patched(good, 6, "B", 9), "its version is 9"),
        ("long_header", good[:6] + b"\x02\0" + b"\xff" * 4 + good[12:], "its length is 4294967295 bytes"),
        ("objects", good.replace(b"'<f4'", b"'|O' "), "its type '|O' is not a number type"),
        ("record", good.replace(b"'<f4'", b"[''] "), "a text in quotes is missing"),
        ("complex", good.replace(b"<f4", b"<c8"), "its type '<c8'"),
        ("negative", good.replace(b"(3, 4)", b"(-3,4)"), "a length is missing or too large"),
        ("huge", good.replace(b"(3, 4)", b"(3, 9999999999999999999)"), "too large"),
        ("no_shape", good.replace(b"shape", b"shapo"), "the key 'shapo' is unknown"),
        ("code", good.replace(b"False", b"eval("), "True or False is missing"),
        ("cut_in_the_header", good[:50], "ends at byte 50, inside the header"),
        ("cut_in_the_array", good[:-3], "inside the array"),
    ]:
        write(f"npy/{name}.npy", content, message)


def text() -> None:
    for name, content, message in [
        ("confounds/ragged.tsv", "a\tb\n1\t2\n3\n", "line 3: it has 1 cell(s), the header has 2"),
        ("confounds/empty.tsv", "", "the file is empty"),
        ("confounds/empty_line.tsv", "a\tb\n1\t2\n\n3\t4\n", "line 3: the line is empty"),
        ("confounds/text.tsv", "a\tb\n1\tx\n", "line 2, column b: 'x' is not a number"),
        ("confounds/infinite.tsv", "a\n-inf\n", "line 2, column a: '-inf' is not finite"),
        ("confounds/twice.tsv", "a\ta\n1\t2\n", "two columns are named 'a'"),
        ("confounds/no_name.tsv", "\ta\n0\t1\n", "column 1 has no name"),
        ("confounds/open_quote.tsv", "a\tb\n1\t\"2\n3\t4\n", "line 2: a double quote is not closed"),
        ("confounds/commas.tsv", "a,b\n1,2\n", "line 2, column a,b: '1,2' is not a number"),
        ("confounds/latin_1.tsv", "a\n\u00b5\n".encode("latin-1"), "line 2: cell 1 is not UTF-8"),
        ("confounds/old_mac.tsv", "a\tb\r1\t2\r", "a carriage return stands inside it"),
        ("events/no_duration.tsv", "onset\ttrial_type\n1\tx\n", "there is no column 'duration'"),
        ("events/onset.tsv", "onset\tduration\nn/a\t1\n", "line 2, column onset: an event without onset"),
        ("events/negative_duration.tsv", "onset\tduration\n1\t-1\n", "line 2, column duration: -1 s is negative"),
        ("ev/two_columns.txt", "1 2 1\n3 4\n", "line 2: it has 2 number(s), not 3"),
        ("ev/word.txt", "1 two 1\n", "line 1: value 2 is 'two'"),
        ("ev/negative_duration.txt", "1 -2 1\n", "the duration -2 s is negative"),
        ("movement/eleven.txt", "0 " * 11 + "\n", "line 1: it has 11 number(s), not 12"),
        ("movement/empty.txt", "", "the file is empty"),
        ("gradients/counts.bval", "0 1000 1000\n", "it has 2 directions for 3 b-values"),
        ("gradients/counts.bvec", "0 1\n0 0\n0 0\n", ""),
        ("gradients/length.bval", "0 1000\n", "has length 2.0000, neither 1 nor 0"),
        ("gradients/length.bvec", "0 2\n0 0\n0 0\n", ""),
        ("gradients/negative.bval", "0 -1\n", "the b-value -1 s/mm² is negative"),
        ("gradients/negative.bvec", "0 1\n0 0\n0 0\n", ""),
        ("gradients/shape.bval", "0 1\n", "directions stand in 3 lines of equal length"),
        ("gradients/shape.bvec", "0 1\n0 0\n", ""),
        ("sidecar/not_json.json", "{RepetitionTime: 2}", "line 1: column 2: not JSON"),
        ("sidecar/list.json", "[2.0]", "a list of 1 instead of an object"),
        ("sidecar/text_for_number.json", '{"RepetitionTime": "2.0"}', "RepetitionTime: it is the text \"2.0\""),
        ("sidecar/milliseconds.json", '{"RepetitionTime": 1500}', "1500 s is implausible"),
        ("sidecar/negative_start.json", '{"StartTime": -0.5}', "StartTime: -0.5 s is negative"),
        ("sidecar/deep.json", "[" * 1000, "recursion limit"),
    ]:
        write(name, content if isinstance(content, bytes) else content.encode(), message)


def main() -> None:
    for part in (nifti, mgh, gifti, cifti, npy, text):
        part()
    (OUT / "messages.json").write_text(json.dumps(MESSAGES, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
