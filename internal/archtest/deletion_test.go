package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Only package destroy may delete what runs, or have a pod evicted: it demands the proofs, and counts.

// mayDelete are the folders of shipped code that delete or evict by the API server, and why.
var mayDelete = map[string]string{
	"internal/destroy": "the only way to delete what runs",
}

// otherDeletes are methods Delete with a context that delete nothing in the cluster.
var otherDeletes = map[string]string{
	"internal/controller/interruption/queue.go: q.Source.Delete": "messages of the interruption queue",
}

// deletingMethods are the methods by which clients of the API server delete objects.
var deletingMethods = []string{"Delete", "DeleteAllOf", "DeleteCollection", "Evict", "EvictV1", "EvictV1beta1"}

func TestOnlyDestroyDeletes(t *testing.T) {
	found := 0
	goFiles(t, func(rel string, source []byte) {
		if strings.HasSuffix(rel, "_test.go") || !strings.HasPrefix(rel, "internal/") && !strings.HasPrefix(rel, "cmd/") ||
			strings.HasPrefix(rel, "internal/controllertest/") || strings.Contains(rel, "/apitest/") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), rel, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range deletions(f) {
			if _, may := mayDelete[path.Dir(rel)]; may {
				found++
				continue
			}
			if _, other := otherDeletes[rel+": "+call]; !other {
				t.Errorf("%s calls %s: only internal/destroy may delete objects and evict pods; call its Guard", rel, call)
			}
		}
	})
	if found < 4 { // NodeClaims, Nodes, pods, evictions
		t.Errorf("found only %d deletions in package destroy: does the test still see them?", found)
	}
}

// deletions are the calls of a file, as written, that delete objects by the API server or have pods evicted: methods with a context as
// first argument, method values that are passed on, and the subresource of evictions.
func deletions(f *ast.File) (out []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		selector, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if selector.Sel.Name == "SubResource" && len(call.Args) == 1 && literal(call.Args[0]) == "eviction" {
			out = append(out, written(call.Fun))
		}
		guarded := strings.HasSuffix(written(selector.X), "Guard")
		if !guarded && slices.Contains(deletingMethods, selector.Sel.Name) && len(call.Args) > 1 && isContext(call.Args[0]) {
			out = append(out, written(call.Fun))
		}
		return true
	})
	return out
}

// isContext reports whether an argument is a context, by the names in it.
func isContext(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok {
			text := strings.ToLower(name.Name)
			found = found || strings.Contains(text, "ctx") || strings.Contains(text, "context") || text == "limited"
		}
		return true
	})
	return found
}

func literal(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok {
		text, _ := strconv.Unquote(l.Value)
		return text
	}
	return ""
}

// written is a chain of names as it is written.
func written(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return written(e.X) + "." + e.Sel.Name
	case *ast.CallExpr:
		return written(e.Fun) + "()"
	default:
		return "?"
	}
}

// unlimited are the kinds of reasons without a limit, and the folders of shipped code that may state them.
var unlimited = map[string][]string{
	"Interrupted": {"internal/destroy", "internal/controller/interruption", "internal/controller/nodeclaim/reservation"},
	"Requested":   {"internal/destroy", "internal/controller/node/termination"},
}

// A caller that states another's kind is not limited, and goes on while deletions are paused.
func TestFewReasonsHaveNoLimit(t *testing.T) {
	found := map[string]int{}
	goFiles(t, func(rel string, source []byte) {
		if strings.HasSuffix(rel, "_test.go") || !strings.HasPrefix(rel, "internal/") && !strings.HasPrefix(rel, "cmd/") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), rel, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok || written(selector.X) != "destroy" {
				return true
			}
			if folders, is := unlimited[selector.Sel.Name]; is {
				found[selector.Sel.Name]++
				if !slices.Contains(folders, path.Dir(rel)) {
					t.Errorf("%s deletes with the kind %s, which has no limit", rel, selector.Sel.Name)
				}
			}
			return true
		})
	})
	for kind := range unlimited {
		if found[kind] == 0 {
			t.Errorf("nobody deletes with the kind %s: does the test still see it?", kind)
		}
	}
}

func TestDeletionsAreSeen(t *testing.T) {
	for code, want := range map[string]bool{
		`func f() { r.Client.Delete(ctx, claim) }`:                                  true,
		`func f() { r.Client.Delete(context.WithoutCancel(ctx), claim, opts...) }`:  true,
		`func f() { q.kube.CoreV1().Pods(ns).EvictV1(ctx, eviction) }`:              true,
		`func f() { c.SubResource("eviction").Create(ctx, pod, e) }`:                true,
		`func f() { c.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}) }`: true,
		`func f() { c.CoreV1().Pods("").DeleteCollection(ctx, a, b) }`:              true,
		`func f() { delete(m, key) }`:                                               false,
		`func f() { cache.Delete(key) }`:                                            false,
		`func f() { e.Guard.Evict(ctx, pod, why) }`:                                 false,
		`func f() { r.Guard.NodeClaim(ctx, claim, why) }`:                           false,
		`func f() { c.SubResource("status").Patch(ctx, pod, e) }`:                   false,
		`func f() { slices.Delete(list, 1, 2) }`:                                    false,
		`func f() { go func() { _ = w.client.Delete(withTimeout(ctx), o) }() }`:     true,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "p.go", "package p\n"+code, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(deletions(f)) > 0; got != want {
			t.Errorf("%s: seen %v, want %v", code, got, want)
		}
	}
}
