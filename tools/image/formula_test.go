package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The statements of a formula, as regular expressions of a whole line. Strings have neither quotes nor escapes.
const (
	rubyString = `"((?:[^"\\#]|#\{[a-z]+\})+)"`
	rubyWord   = `[a-z_]+`
)

var (
	formulaClass = regexp.MustCompile(`^class ([A-Z][A-Za-z]+) < Formula$`)
	formulaBlock = regexp.MustCompile(`^(on_macos|on_linux|on_arm|on_intel|test) do$|^def (install)$`)
	formulaField = regexp.MustCompile(`^(desc|homepage|version|license|url|sha256) ` + rubyString + `$`)
	formulaCall  = regexp.MustCompile(`^(bin\.install|bin\.install_symlink|generate_completions_from_executable|assert_match)[ (].*$`)
	// formulaValue is one value of a call: a string, an association, or a method of something.
	formulaValue = regexp.MustCompile(`^(` + rubyString + ` => ` + rubyString + `|` + rubyString + `|` + rubyWord + `/` + rubyString +
		`|` + rubyWord + `(?:\.` + rubyWord + `)?(?:\(` + rubyString + `\))?)$`)
)

// formula is a formula of Homebrew: its fields and calls, by the blocks around them, such as on_macos/on_arm/url.
type formula struct {
	class  string
	fields map[string]string
	calls  map[string][]string
}

// parseFormula reads the part of Ruby that our formula may have. Any other line is an error, as is a block that does not end where its
// indent does.
func parseFormula(text string) (*formula, error) {
	f := &formula{fields: map[string]string{}, calls: map[string][]string{}}
	var blocks []string
	closed := false
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		statement := strings.TrimLeft(line, " ")
		depth := len(blocks)
		if statement == "end" {
			depth--
		}
		path := strings.TrimPrefix(strings.Join(append(slices.Clone(blocks), ""), "/"), "class/")
		switch m := formulaField.FindStringSubmatch(statement); {
		case statement == "" || strings.HasPrefix(statement, "#"):
			continue
		case closed || len(line)-len(statement) != 2*depth:
			return nil, fmt.Errorf("line %d is not indented as its block: %q", n+1, line)
		case statement == "end":
			blocks = blocks[:depth]
			closed = depth == 0
		case depth == 0 && formulaClass.MatchString(statement):
			f.class = formulaClass.FindStringSubmatch(statement)[1]
			blocks = []string{"class"}
		case depth > 0 && formulaBlock.MatchString(statement):
			b := formulaBlock.FindStringSubmatch(statement)
			blocks = append(blocks, b[1]+b[2])
		case depth > 0 && m != nil:
			if _, twice := f.fields[path+m[1]]; twice {
				return nil, fmt.Errorf("line %d: %s is there twice", n+1, path+m[1])
			}
			f.fields[path+m[1]] = m[2]
		case depth > 0 && formulaCall.MatchString(statement):
			if err := checkCall(statement); err != nil {
				return nil, fmt.Errorf("line %d: %w", n+1, err)
			}
			f.calls[path] = append(f.calls[path], statement)
		default:
			return nil, fmt.Errorf("line %d is no statement of a formula: %q", n+1, line)
		}
	}
	if len(blocks) > 0 || f.class == "" {
		return nil, fmt.Errorf("a block does not end: %q", blocks)
	}
	return f, nil
}

// checkCall is an error unless the arguments of a call are values with commas between them.
func checkCall(statement string) error {
	at := strings.IndexAny(statement, " (")
	arguments := statement[at+1:]
	if statement[at] == '(' {
		var whole bool
		if arguments, whole = strings.CutSuffix(arguments, ")"); !whole {
			return fmt.Errorf("a parenthesis is open: %q", statement)
		}
	}
	for value := range strings.SplitSeq(arguments, ", ") {
		if !formulaValue.MatchString(value) {
			return fmt.Errorf("%q is no value, in %q", value, statement)
		}
	}
	return nil
}

// Homebrew installs, on each system and processor, the archive that is meant, with its checksum, and the formula follows its style.
func TestFormula(t *testing.T) {
	f, err := parseFormula(filled(t, formulaName))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"desc": "Plan, explain and check the nodes of EKS clusters", "homepage": sourceURL, "version": "0.1.0", "license": "Apache-2.0",
	}
	sums := sumsOf(product.platforms)
	for system, name := range map[string]string{"on_macos": "darwin", "on_linux": "linux"} {
		for processor, arch := range map[string]string{"on_arm": "arm64", "on_intel": "amd64"} {
			archive := product.archive(name + "/" + arch)
			want[system+"/"+processor+"/url"] = sourceURL + "/releases/download/v0.1.0/" + archive
			want[system+"/"+processor+"/sha256"] = sums[archive]
		}
	}
	for field, value := range want {
		if f.fields[field] != value {
			t.Errorf("%s is %q, want %q", field, f.fields[field], value)
		}
	}
	if len(f.fields) != len(want) || f.class != "Dovetail" {
		t.Errorf("class %s with fields %v", f.class, f.fields)
	}
	if desc := f.fields["desc"]; len(desc) > 80 || strings.HasSuffix(desc, ".") || strings.HasPrefix(desc, "A ") || strings.HasPrefix(desc, "The ") {
		t.Errorf("Homebrew rejects the description %q", desc)
	}
	if !slices.Contains(f.calls["install/"], `bin.install "`+product.file("linux/amd64")+`"`) || len(f.calls["test/"]) == 0 {
		t.Errorf("calls %v", f.calls)
	}
}

// The test of the formula finds what Ruby would refuse.
func TestABrokenFormulaIsFound(t *testing.T) {
	sound := filled(t, formulaName)
	if _, err := parseFormula(sound); err != nil {
		t.Fatal(err)
	}
	for name, broken := range map[string]string{
		"an end is missing":       strings.Replace(sound, "    end\n", "", 1),
		"one end too many":        sound + "end\n",
		"the last end is missing": strings.TrimSuffix(sound, "end\n"),
		"a quote is missing":      strings.Replace(sound, `license "Apache-2.0"`, `license "Apache-2.0`, 1),
		"a quote too many":        strings.Replace(sound, `license "Apache-2.0"`, `license "Apache"-2.0"`, 1),
		"do is missing":           strings.Replace(sound, "on_macos do", "on_macos", 1),
		"a parenthesis is open":   strings.Replace(sound, `"completion")`, `"completion"`, 1),
		"a comma is missing":      strings.Replace(sound, `bin/"dovetail", "completion"`, `bin/"dovetail" "completion"`, 1),
		"an unknown statement":    strings.Replace(sound, "  license", "  licence", 1),
		"a template is left":      strings.Replace(sound, `version "0.1.0"`, `version "{{ .Version }}`, 1),
		"a field is there twice":  strings.Replace(sound, `  license "Apache-2.0"`, "  license \"Apache-2.0\"\n  license \"MIT\"", 1),
		"it is empty":             "",
	} {
		if _, err := parseFormula(broken); err == nil {
			t.Errorf("%s, and nothing is found", name)
		}
	}
}
