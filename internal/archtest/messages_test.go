package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// otherMessages are files that read texts of others, for which there is no data.
var otherMessages = map[string]string{
	"internal/engine/refusal/why.go":                    "conditions of kube-scheduler",
	"internal/doctor/nodes.go":                          "conditions of NodeClaims, which are all that the API keeps of a finding",
	"internal/inspect/podreport/bound.go":               "conditions, whose full stop does not suit a list",
	"internal/inspect/podreport/pools.go":               "conditions, whose full stop does not suit a list",
	"internal/inspect/nodereport/stages.go":             "conditions, which may name their reason",
	"internal/aws/launch/fleetrequest.go":               "errors of CreateFleet",
	"internal/aws/join/console.go":                      "findings in the output of a console",
	"cmd/dovetail/permission.go":                        "refusals of the API server, which have no field for the verb",
	"internal/controller/provisioning/invalidclaims.go": "causes of the API server, of which a field may be empty",
}

// cutting are functions of package strings that find or cut a part of a text.
var cutting = []string{
	"Contains", "ContainsAny", "Cut", "CutPrefix", "CutSuffix", "EqualFold", "Fields", "HasPrefix", "HasSuffix", "Index", "LastIndex",
	"Replace", "ReplaceAll", "Split", "SplitN", "Trim", "TrimLeft", "TrimPrefix", "TrimRight", "TrimSuffix",
}

// matching are methods of regular expressions.
var matching = []string{"MatchString", "FindString", "FindStringSubmatch", "ReplaceAllString", "FindAllString"}

// A reason is data: anyone who wants to know what it is about reads rejection.Rule or disrupt.Why, not the sentence.
func TestNobodyParsesMessages(t *testing.T) {
	sentences := 0
	goFiles(t, func(rel string, source []byte) {
		if strings.HasSuffix(rel, "_test.go") || strings.HasPrefix(rel, "lab/") || strings.HasPrefix(rel, "tools/") {
			return
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, rel, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if isSentence(n) {
				sentences++
			}
			call, ok := n.(*ast.CallExpr)
			if ok && cuts(call) && slices.ContainsFunc(call.Args, hasSentence) && otherMessages[rel] == "" {
				t.Errorf("%v: parses a message; take the fields of rejection.Rule or disrupt.Why, or the clause of package wording",
					files.Position(call.Pos()))
			}
			return true
		})
	})
	if sentences < 100 {
		t.Errorf("%d messages are read: the test does not find them", sentences)
	}
}

// cuts reports whether a call finds or cuts a part of a text.
func cuts(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := f.X.(*ast.Ident)
	if ok && pkg.Name == "strings" {
		return slices.Contains(cutting, f.Sel.Name)
	}
	return slices.Contains(matching, f.Sel.Name)
}

// isSentence reports whether an expression is a message: the field of that name, or what package wording makes of a reason.
func isSentence(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		return n.Sel.Name == "Message"
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.SelectorExpr)
		if !ok || f.Sel.Name != "Reason" {
			return false
		}
		pkg, ok := f.X.(*ast.Ident)
		return ok && pkg.Name == "wording"
	}
	return false
}

func hasSentence(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		found = found || isSentence(n)
		return true
	})
	return found
}

// parsedInPage is a regular expression of the page that is applied to a sentence of its API.
var parsedInPage = regexp.MustCompile(`/\.(test|exec)\(\w+(\.\w+)*\.(why|whyNot|message|text|reason|verdict)\)|` +
	`\.(why|whyNot|message|text|verdict)\??\.(match|startsWith|endsWith|split|includes)\(`)

// The page of the console chooses glyphs and columns by fields of its API, not by words of a sentence.
func TestThePageParsesNoMessages(t *testing.T) {
	paths, err := filepath.Glob("../../console/src/*.ts*")
	if err != nil || len(paths) < 20 {
		t.Fatalf("%d files of the page, %v", len(paths), err)
	}
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(source), "\n") {
			if found := parsedInPage.FindString(line); found != "" {
				t.Errorf("%s:%d parses a sentence: %s", path, i+1, found)
			}
		}
	}
	if !parsedInPage.MatchString(`state={/not Ready/.test(d.why) ? 'not ready' : 'draining'}`) {
		t.Error("the test does not find a sentence that is parsed")
	}
}
