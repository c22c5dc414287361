package terminalpicture

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// texts are the letters of a picture with their colors, and an error if it is no XML.
func texts(t *testing.T, svg []byte) (out []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(string(svg)))
	color, inside := "", false
	for {
		token, err := d.Token()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatalf("%v in:\n%s", err, svg)
		}
		switch token := token.(type) {
		case xml.StartElement:
			inside, color = token.Name.Local == "text", ""
			for _, a := range token.Attr {
				if a.Name.Local == "fill" {
					color = a.Value
				}
			}
		case xml.EndElement:
			inside = false
		case xml.CharData:
			if inside {
				out = append(out, strings.TrimSpace(color+" "+string(token)))
			}
		}
	}
}

func TestPictureHasTheTextInItsColors(t *testing.T) {
	for name, c := range map[string]struct {
		screen string
		want   []string
	}{
		"plain":               {"a <b> & c", []string{"a <b> & c"}},
		"colors":              {"\x1b[31mred\x1b[m plain \x1b[1;36mbold\x1b[0m", []string{palette[1] + " red", "plain", palette[6] + " bold"}},
		"bright":              {"\x1b[94mx\x1b[m", []string{palette[12] + " x"}},
		"of 256":              {"\x1b[38;5;208mx\x1b[m", []string{"#ff8700 x"}},
		"gray of 256":         {"\x1b[38;5;232mx", []string{"#080808 x"}},
		"no index":            {"\x1b[38;5;900mx", []string{"x"}},
		"reverse":             {"\x1b[7mx\x1b[m", []string{background + " x"}},
		"columns":             {"NAME    AGE", []string{"NAME", "AGE"}},
		"blocks are no text":  {"██▌·", []string{"·"}},
		"other sequences":     {"\x1b[2J\x1b]0;title\x07\x1b[?25lx", []string{"x"}},
		"cut sequence":        {"x\x1b[3", []string{"x"}},
		"a long line breaks":  {"0123456789 123456789 1234", []string{"0123456789 123456789", "1234"}},
		"wide letters":        {"日本 x", []string{"日本 x"}},
		"empty":               {"", nil},
		"empty lines between": {"a\n\nb\n\n", []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := texts(t, Picture{Command: "dovetail x", Screen: c.screen, Columns: 20}.SVG())
			if diff := cmp.Diff(append([]string{"#98a1af $ dovetail x"}, c.want...), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A run keeps its column: each text is stretched to its cells.
func TestRunsHaveTheirColumns(t *testing.T) {
	type place struct {
		text          string
		column, width int
	}
	var got []place
	for _, r := range runs("ab  日本\x1b[1mc\x1b[m██▌d") {
		got = append(got, place{r.text, r.column, r.width})
	}
	want := []place{{"ab  ", 0, 4}, {"日本", 4, 4}, {"c", 8, 1}, {"██", 9, 2}, {"▌", 11, 1}, {"d", 12, 1}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(place{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
