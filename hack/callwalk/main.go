// Command callwalk counts the calls that a function makes in its module while a test runs, and how deep they nest.
//
// It builds the test with copies of the packages (go test -overlay) in which each declared function counts its calls. The
// sources do not change, and so any revision can be counted. Function literals do not count, nor does what other packages
// do. Only calls in the goroutine of the entry count. For the way down to the last storey it also counts the calls and
// returns in the source of its functions: what one must read to follow it.
//
//	go run ./hack/callwalk
//	go run ./hack/callwalk -C ../other-worktree -list
//	go run ./hack/callwalk -packages internal/controller/disruption -add "" -run 'TestConsolidation$' -entry disruption.Loop.execute
package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

//go:embed testdata/counter.txt
var counter []byte

//go:embed testdata/onepod.txt
var onePod []byte

// settings are the flags.
type settings struct {
	dir      string   // of the module
	packages []string // with the functions that count; the test is in the first
	add      string   // a file with a test to add to the first package; empty for none
	run      string   // the test
	list     bool
}

func main() {
	var s settings
	flag.StringVar(&s.dir, "C", ".", "the worktree to count in")
	packages := flag.String("packages", "internal/engine/schedule", "packages with the functions that count, with commas; the test is in the first")
	flag.StringVar(&s.add, "add", "one-pod", "a file with a test to add to the first package; one-pod is a plan of one pod, empty adds none")
	flag.StringVar(&s.run, "run", "TestOnePod$", "the test to run")
	entry := flag.String("entry", "schedule.Solve", "the function to begin with, such as disruption.Loop.start")
	until := flag.String("until", "schedule.openBin", "also count until the first call of this function; a receiver may be left out")
	flag.BoolVar(&s.list, "list", false, "list the functions with their calls")
	flag.Parse()
	s.packages = strings.Split(*packages, ",")
	env := []string{"CALLWALK_ENTRY=" + *entry, "CALLWALK_UNTIL=" + *until, "CALLWALK_LIST=" + strconv.FormatBool(s.list)}
	if err := count(s, env); err != nil {
		fmt.Fprintln(os.Stderr, "callwalk:", err)
		os.Exit(1)
	}
}

// count builds and runs the test with counted packages.
func count(s settings, env []string) error {
	temp, err := os.MkdirTemp("", "callwalk")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	root, err := filepath.Abs(s.dir)
	if err != nil {
		return err
	}
	module, err := moduleOf(root)
	if err != nil {
		return err
	}
	o := overlay{temp: temp, replace: map[string]string{}}
	if err := o.put(filepath.Join(root, "internal/callwalk/callwalk.go"), counter); err != nil {
		return err
	}
	for _, pkg := range s.packages {
		files, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
		if err != nil || len(files) == 0 {
			return errors.Join(fmt.Errorf("no files in %s", pkg), err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := counted(file, module+"/internal/callwalk")
			if err != nil {
				return err
			}
			if err := o.put(file, source); err != nil {
				return err
			}
		}
	}
	if added, err := addedTest(s.add); err != nil {
		return err
	} else if added != nil {
		if err := o.put(filepath.Join(root, s.packages[0], "callwalk_added_test.go"), added); err != nil {
			return err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": o.replace})
	if err != nil {
		return err
	}
	at := filepath.Join(temp, "overlay.json")
	if err := os.WriteFile(at, list, 0o600); err != nil {
		return err
	}
	cmd := exec.Command("go", "test", "-count=1", "-vet=off", "-v", "-overlay", at, "-run", s.run, "./"+s.packages[0])
	cmd.Dir, cmd.Env = root, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	found := false
	for line := range strings.Lines(string(out)) {
		if rest, ok := strings.CutPrefix(line, "callwalk: "); ok {
			found = true
			fmt.Print(rest)
		}
	}
	if err != nil || !found {
		return errors.Join(fmt.Errorf("the test did not run, or did not call the entry:\n%s", out), err)
	}
	return nil
}

func addedTest(name string) ([]byte, error) {
	switch name {
	case "":
		return nil, nil
	case "one-pod":
		return onePod, nil
	}
	return os.ReadFile(name)
}

func moduleOf(root string) (string, error) {
	b, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(strings.TrimPrefix(line, "module")), nil
}

// overlay is files in place of others, as go test -overlay reads them.
type overlay struct {
	temp    string
	replace map[string]string
}

func (o *overlay) put(path string, content []byte) error {
	at := filepath.Join(o.temp, strconv.Itoa(len(o.replace))+".go")
	o.replace[path] = at
	return os.WriteFile(at, content, 0o600)
}

// counted is the source of a file in which each declared function counts its calls.
func counted(path, counter string) ([]byte, error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return nil, err
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	type insertion struct {
		at   int
		text string
	}
	var all []insertion
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			name := f.Name.Name + "." + receiver(fn) + fn.Name.Name
			calls, returns := inSource(fn)
			text := fmt.Sprintf("\ndefer callwalk.Enter(%q, %d, %d)()\n", name, calls, returns)
			all = append(all, insertion{set.Position(fn.Body.Lbrace).Offset + 1, text})
		}
	}
	if len(all) == 0 {
		return source, nil
	}
	all = append(all, insertion{set.Position(f.Name.End()).Offset, "\nimport callwalk " + strconv.Quote(counter) + "\n"})
	slices.SortFunc(all, func(a, b insertion) int { return b.at - a.at })
	for _, i := range all {
		source = slices.Insert(source, i.at, []byte(i.text)...)
	}
	return format.Source(bytes.TrimSpace(source))
}

// inSource are how many calls and returns a reader of the function sees.
func inSource(fn *ast.FuncDecl) (calls, returns int) {
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.CallExpr:
			calls++
		case *ast.ReturnStmt:
			returns++
		}
		return true
	})
	return calls, returns
}

// receiver is the receiver's type with a dot; empty for functions.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	t := fn.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "."
		default:
			return ""
		}
	}
}
