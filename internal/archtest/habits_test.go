package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	// maxColumns states what two windows side by side show on a wide screen; a tab counts as one column.
	maxColumns = 140
	// maxParameters limits how many values a reader can distinguish at a call without looking up the function. A context does not count, nor
	// do the values of a format.
	maxParameters = 4
)

// goFiles calls visit with each Go file of the repository that people write, and its path from the root.
func goFiles(t *testing.T, visit func(rel string, source []byte)) {
	t.Helper()
	const root = "../.."
	seen := 0
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != root && skipped(p, root) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasPrefix(d.Name(), "zz_generated") {
			return nil
		}
		source, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		seen++
		visit(filepath.ToSlash(rel), source)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 20 {
		t.Fatalf("read %d files only: check the path of the root", seen)
	}
}

func TestLinesFitTheScreen(t *testing.T) {
	goFiles(t, func(rel string, source []byte) {
		if strings.HasSuffix(rel, "_test.go") {
			return // a row of a table test reads best as one line
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, rel, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		texts := linesOfTexts(files, f)
		for n, line := range strings.Split(string(source), "\n") {
			columns := utf8.RuneCountInString(line)
			if columns > maxColumns && !texts[n+1] && !strings.Contains(line, "// +kubebuilder:") {
				t.Errorf("%s:%d has %d columns: wrap it at %d", rel, n+1, columns, maxColumns)
			}
		}
	})
}

// longText is the length from which a text stays on one line, in bytes, so that a search for it finds it as a whole.
const longText = 60

// linesOfTexts are the lines, counted from 1, that have a part of a long text.
func linesOfTexts(files *token.FileSet, f *ast.File) map[int]bool {
	out := map[int]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING && len(text.Value) > longText {
			for line := files.Position(text.Pos()).Line; line <= files.Position(text.End()).Line; line++ {
				out[line] = true
			}
		}
		return true
	})
	return out
}

// clockFunctions holds what package time has of clocks; a duration or an instant that is given is data.
var clockFunctions = map[string]bool{
	"After": true, "AfterFunc": true, "NewTicker": true, "NewTimer": true, "Now": true, "Since": true, "Sleep": true,
	"Ticker": true, "Tick": true, "Timer": true, "Until": true,
}

// Equal snapshots must give equal plans on every computer, so budgets of the engine count steps.
func TestEngineReadsNoClock(t *testing.T) {
	goFiles(t, func(rel string, source []byte) {
		if !strings.HasPrefix(rel, "internal/engine/") || strings.HasSuffix(rel, "_test.go") {
			return
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, rel, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for at, name := range clockUses(f) {
			t.Errorf("%s: the engine uses time.%s: pass the instant in the snapshot, or count steps", files.Position(at), name)
		}
	})
}

// clockUses are the places where a file uses a clock of package time.
func clockUses(f *ast.File) map[token.Pos]string {
	out := map[token.Pos]string{}
	local := ""
	for _, spec := range f.Imports {
		if spec.Path.Value != `"time"` {
			continue
		}
		local = "time"
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if local == "." {
			out[spec.Pos()] = "*"
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok || local == "" {
			return true
		}
		if x, ok := s.X.(*ast.Ident); ok && x.Name == local && clockFunctions[s.Sel.Name] {
			out[s.Pos()] = s.Sel.Name
		}
		return true
	})
	return out
}

func TestClockUses(t *testing.T) {
	for source, want := range map[string]int{
		`import "time"; var d = 5 * time.Minute`:                                0,
		`import "time"; func f(t time.Time) time.Duration { return t.Sub(t) }`:  0,
		`import "time"; var t = time.Now()`:                                     1,
		`import clock "time"; var now = clock.Now; var d = clock.Since(now())`:  2,
		`import . "time"; var t = Now()`:                                        1,
		`import "example.com/time"; type s struct{ time struct{ Now func() } }`: 0,
		`import "time"; func f() { <-time.After(time.Second); time.Sleep(1) }`:  2,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "", "package p; "+source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if got := clockUses(f); len(got) != want {
			t.Errorf("%s: clocks are %v, want %d", source, got, want)
		}
	}
}

func TestFunctionsHaveFewParametersAndErrorsComeLast(t *testing.T) {
	goFiles(t, func(rel string, source []byte) {
		if strings.HasSuffix(rel, "_test.go") {
			return // libraries' hooks have the signatures that they have
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, rel, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if f, ok := n.(*ast.FuncDecl); ok {
				for _, fault := range signatureFaults(f.Type) {
					t.Errorf("%s: %s", files.Position(n.Pos()), fault)
				}
			}
			return true
		})
	})
}

// signatureFaults lists what makes a function's type hard to call.
func signatureFaults(f *ast.FuncType) []string {
	var out []string
	if n := parameters(f.Params); n > maxParameters {
		out = append(out, "the function has more than 4 parameters: pass a struct, or make it a method")
	}
	if f.Results == nil {
		return out
	}
	for i, result := range f.Results.List {
		if name, ok := result.Type.(*ast.Ident); ok && name.Name == "error" && i < len(f.Results.List)-1 {
			out = append(out, "the error is not the last result")
		}
	}
	return out
}

// parameters counts the parameters of a function, without a context and those of a variadic rest.
func parameters(list *ast.FieldList) int {
	n := 0
	for _, field := range list.List {
		if s, ok := field.Type.(*ast.SelectorExpr); ok && s.Sel.Name == "Context" {
			continue
		}
		if _, variadic := field.Type.(*ast.Ellipsis); variadic {
			continue
		}
		n += max(1, len(field.Names))
	}
	return n
}

func TestSignatureFaults(t *testing.T) {
	tests := []struct {
		name, signature string
		faults          int
	}{
		{"four parameters", "func(a, b int, c string, d bool)", 0},
		{"a context does not count", "func(ctx context.Context, a, b int, c string, d bool) error", 0},
		{"the values of a format do not count", "func(a, b int, c, format string, args ...any)", 0},
		{"five parameters", "func(a, b int, c string, d, e bool)", 1},
		{"the error comes last", "func() (int, error)", 0},
		{"the error comes first", "func() (error, int)", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			expr, err := parser.ParseExpr(tt.signature)
			if err != nil {
				t.Fatal(err)
			}
			if got := signatureFaults(expr.(*ast.FuncType)); len(got) != tt.faults {
				t.Errorf("faults = %q, want %d", got, tt.faults)
			}
		})
	}
}
