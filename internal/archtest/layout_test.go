package archtest

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// layoutPage has the list of packages.
const layoutPage = "docs/architecture.md"

// listed is one line of the package layout: a directory, with its text.
type listed struct{ dir, text string }

var (
	layoutBlock = regexp.MustCompile("(?s)## Package layout\n+```\n(.*?)```")
	// layoutLine has the indent, the directories, each with a slash behind it, and the text.
	layoutLine = regexp.MustCompile(`^( *)([a-z0-9/-]+/(?:, [a-z0-9/-]+/)*)(?: +(.*))?$`)
	// mostIndent is the deepest indent of a directory. Lines with more continue a text.
	mostIndent = 8
)

// parseLayout reads the package layout of a page. Directories are below those that are above them and less indented.
func parseLayout(page string) (out []listed) {
	block := layoutBlock.FindStringSubmatch(page)
	if block == nil {
		return nil
	}
	parents := map[int]string{} // by indent
	entries := 0                // of the last line
	for line := range strings.Lines(block[1]) {
		line = strings.TrimRight(line, "\n")
		m := layoutLine.FindStringSubmatch(line)
		if m == nil || len(m[1]) > mostIndent {
			for i := range entries {
				out[len(out)-1-i].text += " " + strings.TrimSpace(line)
			}
			continue
		}
		entries = 0
		for name := range strings.SplitSeq(m[2], ", ") {
			dir := path.Join(parents[len(m[1])-2], strings.TrimSuffix(name, "/"))
			parents[len(m[1])] = dir
			out = append(out, listed{dir, m[3]})
			entries++
		}
	}
	return out
}

// lists reports whether the layout has a directory: as a line, by its name in the text of a directory above it, or by its name in
// a text such as "resolves an EC2NodeClass, from image, network" of a directory beside it.
func lists(layout []listed, dir string) bool {
	for _, l := range layout {
		if l.dir == dir {
			return true
		}
		below, is := strings.CutPrefix(dir, l.dir+"/")
		if is && names(l.text, path.Base(l.dir), below) {
			return true
		}
		_, parts, has := strings.Cut(l.text, ", from ")
		if has && path.Dir(l.dir) == path.Dir(dir) && names(parts, "", path.Base(dir)) {
			return true
		}
	}
	return false
}

// names reports whether a text has a name as a word, with or without the directory above it.
func names(text, above, name string) bool {
	return regexp.MustCompile(`(^|[^a-z/])(` + regexp.QuoteMeta(above) + `/)?` + regexp.QuoteMeta(name) + `\b`).MatchString(text)
}

// A reader finds each package in docs/architecture.md, and each directory that the page lists exists.
func TestThePackageLayoutIsTheOneOfThePage(t *testing.T) {
	const root = "../.."
	page, err := os.ReadFile(filepath.Join(root, layoutPage))
	if err != nil {
		t.Fatal(err)
	}
	layout := parseLayout(string(page))
	if len(layout) < 60 {
		t.Fatalf("%s lists %d directories: is the list still below the heading Package layout?", layoutPage, len(layout))
	}
	for i, l := range layout {
		if info, err := os.Stat(filepath.Join(root, l.dir)); err != nil || !info.IsDir() {
			t.Errorf("%s lists %s/, which is no directory", layoutPage, l.dir)
		}
		if slices.ContainsFunc(layout[:i], func(other listed) bool { return other.dir == l.dir }) {
			t.Errorf("%s lists %s/ twice", layoutPage, l.dir)
		}
	}
	for _, dir := range packageDirs(t, root) {
		if !lists(layout, dir) {
			t.Errorf("%s does not list %s/: add a line, or its name to the text of a directory above it", layoutPage, dir)
		}
	}
}

// packageDirs are the directories of internal with Go files that ship or test, and those at the first level of cmd, lab and
// tools.
func packageDirs(t *testing.T, root string) (out []string) {
	t.Helper()
	for _, top := range []string{"internal", "cmd", "lab", "tools"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			if strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules" {
				return filepath.SkipDir
			}
			rel, err := filepath.Rel(root, p)
			if err != nil {
				return err
			}
			dir := filepath.ToSlash(rel)
			files, err := filepath.Glob(filepath.Join(p, "*.go"))
			if err != nil {
				return err
			}
			if len(files) > 0 && dir != top && (top == "internal" || strings.Count(dir, "/") == 1) {
				out = append(out, dir)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestParseLayout(t *testing.T) {
	layout := parseLayout("## Package layout\n\n```\napi/      what users write; CRDs in api/crds\ninternal/\n  engine/  planning\n" +
		"    catalog/   types; catalog/offline has EC2's\n  aws/\n    session/, policy/\n" +
		"               credentials;\n               and rules\n```\n")
	want := []listed{
		{"api", "what users write; CRDs in api/crds"},
		{"internal", ""},
		{"internal/engine", "planning"},
		{"internal/engine/catalog", "types; catalog/offline has EC2's"},
		{"internal/aws", ""},
		{"internal/aws/session", " credentials; and rules"},
		{"internal/aws/policy", " credentials; and rules"},
	}
	if !slices.Equal(layout, want) {
		t.Errorf("%+v, want %+v", layout, want)
	}
	for dir, found := range map[string]bool{
		"internal/engine/catalog/offline": true, "internal/engine/catalog/off": false, "internal/aws/session": true, "internal/aws/rules": false,
		"internal/engine/plan": false, "api/crds": true,
	} {
		if lists(layout, dir) != found {
			t.Errorf("%s: listed is %v", dir, !found)
		}
	}
}
