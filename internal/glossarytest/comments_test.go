package glossarytest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/glossarytest"
)

// Comments are what the next author reads first.
func TestCommentsUseTheVocabulary(t *testing.T) {
	g, err := glossarytest.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	comments := 0
	for _, dir := range []string{"api", "cmd", "deploy", "hack", "internal", "lab", "tools"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules"):
				return filepath.SkipDir
			case d.IsDir() || filepath.Ext(path) != ".go" || strings.HasPrefix(d.Name(), "zz_generated"):
				return nil
			}
			found, n, err := checkComments(g, path)
			if err != nil {
				return err
			}
			comments += n
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			for _, f := range found {
				t.Errorf("%s: %s", name, f)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if comments < 1000 {
		t.Fatalf("read %d comments only: is the root of the repository still %s?", comments, root)
	}
}

// checkComments returns the words to avoid in the comments of a Go file, and the number of comments. A finding has the line of the file.
func checkComments(g *glossarytest.Glossary, path string) (out []glossarytest.Finding, comments int, err error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, 0, err
	}
	declared := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok {
			declared[name.Name] = true
		}
		return true
	})
	for _, group := range f.Comments {
		comments++
		if strings.HasPrefix(group.Text(), "Output:") { // of an example: what it prints
			continue
		}
		for _, finding := range g.CheckComment(withoutNames(textOf(group), declared)) {
			finding.Line += files.Position(group.Pos()).Line - 1
			out = append(out, finding)
		}
	}
	return out, comments, nil
}

// beginning is the first word of a sentence.
var beginning = regexp.MustCompile(`(?:^ |\. |\n )\w+`)

// withoutNames replaces the names that sentences of a comment begin with: a name is checked by its reviewer.
func withoutNames(text string, declared map[string]bool) string {
	return beginning.ReplaceAllStringFunc(text, func(match string) string {
		word := strings.TrimLeft(match, ". \n")
		if declared[word] || declared[strings.ToLower(word[:1])+word[1:]] {
			return strings.TrimSuffix(match, word) + "NAME"
		}
		return match
	})
}

// textOf returns a comment without its slashes, with the lines that it has in the file. Directives are no text.
func textOf(group *ast.CommentGroup) string {
	var lines []string
	for _, c := range group.List {
		if strings.HasPrefix(c.Text, "/*") {
			lines = append(lines, strings.Split(strings.TrimSuffix(strings.TrimPrefix(c.Text, "/*"), "*/"), "\n")...)
			continue
		}
		text := strings.TrimPrefix(c.Text, "//")
		if text != "" && text[0] != ' ' && text[0] != '\t' { // a directive, such as go:build
			text = ""
		}
		lines = append(lines, text)
	}
	return strings.Join(lines, "\n")
}
