package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// MaxNodePoolBytes bounds the manifest of one object that is edited. With 100 requirements of 50 values each, a NodePool has 100 kB; the
// API server takes 1.5 MB.
const MaxNodePoolBytes = 256 << 10

// Fault describes what is wrong with a manifest.
type Fault struct {
	// Line states where, from 1; 0 if that is not known.
	Line int `json:"line"`
	// Field is like spec.template.spec.requirements[0].operator; empty if no single field is at fault.
	Field   string `json:"field"`
	Message string `json:"message"`
}

// editReader reads the manifest of one object that a person edits. Its methods may be called at the same time.
type editReader struct {
	kind       kind
	definition func() (*definition, error)
}

// newEditReader makes a reader of a kind. Compiling the schema takes a moment, and begins with the first manifest.
func newEditReader(of kind) editReader {
	return editReader{of, sync.OnceValues(func() (*definition, error) { return newDefinition(of) })}
}

// NodePoolReader reads the manifest of one NodePool that a person edits. Its methods may be called at the same time.
type NodePoolReader struct{ editReader }

// NodeClassReader is the same for an EC2NodeClass.
type NodeClassReader struct{ editReader }

// NewNodePoolReader makes a reader. Compiling the schema takes a moment, and begins with the first manifest.
func NewNodePoolReader() *NodePoolReader { return &NodePoolReader{newEditReader(nodePoolKind)} }

// NewNodeClassReader makes a reader. Compiling the schema takes a moment, and begins with the first manifest.
func NewNodeClassReader() *NodeClassReader { return &NodeClassReader{newEditReader(nodeClassKind)} }

var (
	nodePoolKind  = kind{karpv1.GroupVersion.String(), "NodePool"}
	nodeClassKind = kind{awsv1.GroupVersion.String(), "EC2NodeClass"}
)

// Read decodes the only document of a text, with defaults. It accepts what the API server would accept, with strict validation of
// fields, and what the controller would act on. The faults are in the order of their lines. An error means that the build is broken.
//
// Cost: the text is bounded, and has no aliases, so the tree that it stands for is as small as the text.
func (r *NodePoolReader) Read(text []byte) (*karpv1.NodePool, []Fault, error) {
	pool := &karpv1.NodePool{}
	faults, err := r.read(text, pool, func() []Fault {
		if err := pool.RuntimeValidate(awsv1.Vocabulary()); err != nil {
			return faultsOf(err)
		}
		return nil
	})
	if err != nil || len(faults) > 0 {
		return nil, faults, err
	}
	return pool, nil, nil
}

// Read is that of NodePoolReader.
func (r *NodeClassReader) Read(text []byte) (*awsv1.EC2NodeClass, []Fault, error) {
	class := &awsv1.EC2NodeClass{}
	faults, err := r.read(text, class, func() []Fault { return nil })
	if err != nil || len(faults) > 0 {
		return nil, faults, err
	}
	return class, nil, nil
}

// read decodes the only document of a text into an object of the reader's kind. check finds what the schema does not.
func (r *editReader) read(text []byte, into client.Object, check func() []Fault) ([]Fault, error) {
	made, err := r.definition()
	if err != nil {
		return nil, err
	}
	root, wrong := r.onlyDocument(text)
	if wrong != nil {
		return []Fault{*wrong}, nil
	}
	data, err := sigsyaml.YAMLToJSONStrict(text)
	if err != nil {
		return []Fault{syntaxFault(err)}, nil
	}
	var fields map[string]any
	if utiljson.Unmarshal(data, &fields) != nil || fields == nil {
		return []Fault{{Line: 1, Message: "this is no object: " + r.kind.withArticle() + " begins with apiVersion, kind and metadata"}}, nil
	}
	faults := r.complete(made, fields, into)
	if len(faults) == 0 {
		faults = check()
	}
	for i := range faults {
		faults[i].Line = lineOf(root, faults[i].Field)
	}
	slices.SortStableFunc(faults, func(a, b Fault) int { return a.Line - b.Line })
	return faults[:min(len(faults), maxErrors)], nil
}

// withArticle is the kind after its article.
func (k kind) withArticle() string {
	if strings.HasPrefix(k.kind, "E") {
		return "an " + k.kind
	}
	return "a " + k.kind
}

// onlyDocument parses the text to find lines and aliases; what it means is decided by the decoder of all other manifests.
func (r *editReader) onlyDocument(text []byte) (*yaml.Node, *Fault) {
	if len(text) > MaxNodePoolBytes {
		return nil, &Fault{Message: fmt.Sprintf("the manifest has %d bytes; the limit is %d", len(text), MaxNodePoolBytes)}
	}
	switch documents := yamlTexts(text, 1); len(documents) {
	case 0:
		return nil, &Fault{Line: 1, Message: "the manifest is empty"}
	case 1:
	default:
		return nil, &Fault{Line: documents[1].line, Message: "a second document begins here: edit one " + r.kind.kind + " at a time"}
	}
	root := &yaml.Node{}
	if err := yaml.Unmarshal(text, root); err != nil {
		fault := syntaxFault(err)
		return nil, &fault
	}
	if alias := firstAlias(root); alias != nil {
		return nil, &Fault{Line: alias.Line, Message: "*" + alias.Value + " is an alias: write out what it stands for"}
	}
	return root, nil
}

func firstAlias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n
	}
	for _, child := range n.Content {
		if found := firstAlias(child); found != nil {
			return found
		}
	}
	return nil
}

// syntaxFault is the error of a YAML parser, which names the line.
func syntaxFault(err error) Fault {
	text := err.Error()
	out := Fault{Message: "not valid YAML: " + yamlPrefix.ReplaceAllString(text, "")}
	if at := lineNumber.FindStringSubmatch(text); at != nil {
		out.Line, _ = strconv.Atoi(at[1]) // 0 if it is none
	}
	return out
}

// yamlPrefix holds what parsers begin their errors with.
var yamlPrefix = regexp.MustCompile(`^(error converting YAML to JSON: )?(yaml: )?(unmarshal errors:\s*)?(line \d+: )?`)

// complete defaults, validates and decodes.
func (r *editReader) complete(made *definition, fields map[string]any, into client.Object) []Fault {
	if found := (kind{stringIn(fields, "apiVersion"), stringIn(fields, "kind")}); found != r.kind {
		at, message := "kind", fmt.Sprintf("this is %s; here, it must be %s", found.withArticle(), r.kind.withArticle())
		if found.kind == r.kind.kind || found.kind == "" {
			at, message = "apiVersion", fmt.Sprintf("it must be %s, with kind: %s", r.kind.apiVersion, r.kind.kind)
		}
		return []Fault{{Field: at, Message: message}}
	}
	if wrong := made.complete(fields); len(wrong) > 0 {
		return faultsOf(wrong.ToAggregate())
	}
	data, err := json.Marshal(fields)
	if err != nil {
		return []Fault{{Message: err.Error()}}
	}
	d := document{raw: data, kind: r.kind}
	unknown, err := kjson.UnmarshalStrict(data, into)
	if err != nil {
		return []Fault{faultOf(d.locate(into, err))}
	}
	if len(unknown) > 0 {
		return unknownFields(unknown)
	}
	if into.GetName() == "" {
		return []Fault{{Field: "metadata.name", Message: "it is missing"}}
	}
	if wrong := metaErrors(into); len(wrong) > 0 {
		return faultsOf(wrong.ToAggregate())
	}
	return nil
}

func stringIn(fields map[string]any, key string) string {
	out, _ := fields[key].(string)
	return out
}

// unknownFields returns those of the errors of the strict decoder, which are like: unknown field "spec.x".
func unknownFields(strict []error) (out []Fault) {
	for _, err := range strict {
		fault := Fault{Message: err.Error()}
		if path, unknown := unknownField(err); unknown {
			fault.Field, fault.Message = path, "there is no such field"
		}
		out = append(out, fault)
	}
	return out
}

func faultsOf(err error) (out []Fault) {
	var several utilerrors.Aggregate
	if !errors.As(err, &several) {
		return []Fault{faultOf(err)}
	}
	for _, e := range several.Errors() {
		out = append(out, faultOf(e))
	}
	return out
}

// faultOf takes the field out of an error. Errors of the decoder begin with it.
func faultOf(err error) Fault {
	var known *field.Error
	if errors.As(err, &known) {
		if known.Field == "<nil>" {
			return Fault{Message: known.ErrorBody()}
		}
		return Fault{Field: known.Field, Message: known.ErrorBody()}
	}
	if at, message, found := strings.Cut(err.Error(), ": "); found && !strings.Contains(at, " ") {
		return Fault{Field: at, Message: message}
	}
	return Fault{Message: err.Error()}
}

// lineOf is the line of a field like spec.limits.cpu, or of what comes nearest: a field that is missing is missing in its parent.
func lineOf(root *yaml.Node, path string) int {
	if path == "" || len(root.Content) == 0 {
		return 0
	}
	at, line := root.Content[0], 1
	for path != "" {
		next, rest, found := descend(at, path)
		if !found {
			break
		}
		at, path, line = next.value, rest, next.line
	}
	return line
}

// entry is a value with the line at which its key begins.
type entry struct {
	value *yaml.Node
	line  int
}

// descend goes to the child of a node that a path begins with, and returns what remains of the path.
func descend(n *yaml.Node, path string) (next entry, rest string, found bool) {
	path = strings.TrimPrefix(path, ".")
	index, after, indexed := strings.Cut(strings.TrimPrefix(path, "["), "]")
	if indexed = indexed && path[0] == '['; indexed && n.Kind == yaml.SequenceNode {
		i, err := strconv.Atoi(index)
		if err != nil || i < 0 || i >= len(n.Content) {
			return entry{}, "", false
		}
		return entry{n.Content[i], n.Content[i].Line}, after, true
	}
	if n.Kind != yaml.MappingNode {
		return entry{}, "", false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		rest, begins := strings.CutPrefix(path, key.Value)
		if indexed && key.Value == index {
			rest, begins = after, true
		}
		if begins && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return entry{n.Content[i+1], key.Line}, rest, true
		}
	}
	return entry{}, "", false
}
