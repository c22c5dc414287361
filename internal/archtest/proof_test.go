package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A function may call an AWS action that deletes or changes a resource only if it takes a proof of the resource's
// ownership, and reads the resource's ID from the proof. See internal/aws/identity.

const (
	awsServices = "github.com/aws/aws-sdk-go-v2/service/"
	identities  = module + "/internal/aws/identity"
)

// destructive are verbs that begin the names of actions that need a proof, in any service.
var destructive = []string{
	"Cancel", "Delete", "Deregister", "Detach", "Disable", "Disassociate", "Modify", "Reboot", "Release", "Remove", "Replace", "Reset",
	"Revoke", "Stop", "Tag", "Terminate", "Unassign", "Untag", "Update", "CreateTags",
}

// actions are recognized even where their input is not named, as when a call is passed on. The verbs alone are not
// enough: other types have methods that begin like this.
var actions = []string{
	"CreateTags", "DeleteFleets", "DeleteInstanceProfile", "DeleteLaunchTemplate", "DeleteLaunchTemplateVersions", "DeleteNetworkInterface",
	"DeleteTags", "DeleteVolume", "DetachVolume", "ModifyInstanceAttribute", "RebootInstances", "RemoveRoleFromInstanceProfile",
	"StopInstances",
	"TagInstanceProfile", "TerminateInstances", "UntagInstanceProfile",
}

// notOwned are actions on resources without an owner: they need no proof.
var notOwned = []string{
	"DeleteMessage", "DeleteMessageBatch", // of a queue, once read
}

func TestDestructiveAWSCallsRequireProofOfOwnership(t *testing.T) {
	guarded := 0
	for _, dir := range []string{"../../cmd", "../../internal", "../../api", "../../deploy"} {
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), p, nil, 0)
			if err != nil {
				return err
			}
			seen, problems := unproven(f)
			guarded += seen
			for _, problem := range problems {
				t.Errorf("%s: %s", p, problem)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// Instances, launch templates and instance profiles are deleted, instances and profiles tagged.
	if guarded < 5 {
		t.Errorf("found only %d functions that delete or tag something: is the SDK still called as this test expects?", guarded)
	}
}

// unproven returns how many functions of a file call an action that needs a proof, and the problems with them.
func unproven(f *ast.File) (seen int, problems []string) {
	services, proofs := imports(f)
	for _, decl := range f.Decls {
		var body ast.Node
		name, params := "a variable", (*ast.FieldList)(nil)
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Body != nil {
				body = d.Body
			}
			name, params = d.Name.Name, d.Type.Params
		case *ast.GenDecl:
			if d.Tok == token.VAR {
				body = d
			}
		}
		if body == nil {
			continue
		}
		called := needsProof(body, services)
		if len(called) == 0 {
			continue
		}
		seen++
		if !takesProof(params, body, proofs) {
			problems = append(
				problems,
				fmt.Sprintf(
					"%s calls %s without a proof of ownership: take an identity.Owned (or identity.Adoption) and read the ID from it",
					name,
					strings.Join(called, ", "),
				),
			)
		}
	}
	return seen, problems
}

// imports returns the names under which a file imports AWS services and package identity.
func imports(f *ast.File) (services []string, identity string) {
	for _, spec := range f.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := path[strings.LastIndexByte(path, '/')+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		switch {
		case path == identities:
			identity = name
		case strings.HasPrefix(path, awsServices) && !strings.HasSuffix(path, "/types"):
			services = append(services, name)
		}
	}
	return services, identity
}

// needsProof returns the actions that a piece of code calls, passes on, or prepares.
func needsProof(code ast.Node, services []string) []string {
	var out []string
	ast.Inspect(code, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		action := selector.Sel.Name
		if from, ok := selector.X.(*ast.Ident); ok && slices.Contains(services, from.Name) {
			action, ok = strings.CutSuffix(action, "Input")
			if !ok || !slices.ContainsFunc(destructive, func(verb string) bool { return strings.HasPrefix(action, verb) }) {
				return true
			}
		} else if !slices.Contains(actions, action) {
			return true
		}
		if !slices.Contains(notOwned, action) && !slices.Contains(out, action) {
			out = append(out, action)
		}
		return true
	})
	return out
}

// takesProof reports whether one of the parameters is a proof, and the code reads the resource from it.
func takesProof(params *ast.FieldList, code ast.Node, identity string) bool {
	if params == nil || identity == "" {
		return false
	}
	for _, field := range params.List {
		list, several := field.Type.(*ast.ArrayType)
		typ, ok := field.Type.(*ast.SelectorExpr)
		if several {
			typ, ok = list.Elt.(*ast.SelectorExpr)
		}
		if !ok {
			continue
		}
		from, ok := typ.X.(*ast.Ident)
		if !ok || from.Name != identity || typ.Sel.Name != "Owned" && typ.Sel.Name != "Adoption" {
			continue
		}
		for _, name := range field.Names {
			if !several && readsProof(code, name.Name) || several && readsEachProof(code, name.Name) {
				return true
			}
		}
	}
	return false
}

// readsEachProof reports whether the code calls a method of every proof in the list with this name.
func readsEachProof(code ast.Node, proofs string) (found bool) {
	ast.Inspect(code, func(n ast.Node) bool {
		loop, ok := n.(*ast.RangeStmt)
		if !ok {
			return true
		}
		over, ok := loop.X.(*ast.Ident)
		proof, named := loop.Value.(*ast.Ident)
		found = found || ok && named && over.Name == proofs && readsProof(loop.Body, proof.Name)
		return true
	})
	return found
}

// readsProof reports whether the code calls a method of the proof with this name.
func readsProof(code ast.Node, proof string) (found bool) {
	ast.Inspect(code, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if method, ok := call.Fun.(*ast.SelectorExpr); ok && (method.Sel.Name == "ID" || method.Sel.Name == "Tags") {
			on, ok := method.X.(*ast.Ident)
			found = found || ok && on.Name == proof
		}
		return true
	})
	return found
}

func TestUnproven(t *testing.T) {
	const head = `package p
import (
	"context"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	who "github.com/dovetail-k8s/dovetail/internal/aws/identity"
)
`
	for _, tt := range []struct {
		name, code string
		refused    bool
	}{
		{
			"a call by ID",
			`func end(ctx context.Context, c *ec2.Client, id string) { c.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}}) }`, true,
		},
		{
			"a call by proof",
			`func end(ctx context.Context, c *ec2.Client, o who.Owned) { id, _ := o.ID(who.Instance); c.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}}) }`, false,
		},
		{
			"a call by proofs",
			`func end(ctx context.Context, c *ec2.Client, all []who.Owned) { var ids []string; for _, o := range all { id, _ := o.ID(who.Instance); ids = append(ids, id) }; c.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids}) }`, false,
		},
		{
			"proofs that nothing reads",
			`func end(ctx context.Context, c *ec2.Client, all []who.Owned, ids []string) { for range all { c.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids}) } }`, true,
		},
		{
			"a list that is no proofs",
			`func end(ctx context.Context, c *ec2.Client, all []string) { for _, o := range all { c.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{o}}) } }`, true,
		},
		{
			"a proof that nothing reads",
			`func end(ctx context.Context, c *ec2.Client, o who.Owned, id string) { c.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}}) }`, true,
		},
		{
			"a call that is passed on",
			`func (w wrapper) TerminateInstances(ctx context.Context, in *ec2.TerminateInstancesInput) { w.api.TerminateInstances(ctx, in) }`, true,
		},
		{"a method value", `func end(c *ec2.Client) any { return c.DeleteLaunchTemplate }`, true},
		{"an input that is prepared for others", `func input() any { return &ec2.DeleteTagsInput{} }`, true},
		{"in a variable", `var end = func(c *ec2.Client) { c.DeleteTags(nil, nil) }`, true},
		{"in a function within", `func end(c *ec2.Client) { go func() { c.CreateTags(nil, nil) }() }`, true},
		{"an action that is not in the list", `func end(c *ec2.Client) { c.ModifyVolume(nil, &ec2.ModifyVolumeInput{}) }`, true},
		{"an interface", `type api interface { TerminateInstances(ctx context.Context, in *ec2.TerminateInstancesInput) }`, false},
		{"a call that only reads", `func see(c *ec2.Client) { c.DescribeInstances(nil, &ec2.DescribeInstancesInput{}) }`, false},
		{"a call that creates", `func launch(c *ec2.Client) { c.CreateFleet(nil, &ec2.CreateFleetInput{}) }`, false},
		{"a message that was read", `func read(c *sqs.Client) { c.DeleteMessage(nil, &sqs.DeleteMessageInput{}) }`, false},
		{
			"tagging by proof of adoption",
			`func tag(c *ec2.Client, a who.Adoption) { id, tags, _ := a.Tags(who.Instance); c.CreateTags(nil, &ec2.CreateTagsInput{Resources: []string{id}, Tags: tags}) }`, false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := parser.ParseFile(token.NewFileSet(), "p.go", head+tt.code, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, problems := unproven(f); (len(problems) > 0) != tt.refused {
				t.Errorf("problems %q, want refused = %v", problems, tt.refused)
			}
		})
	}
}
