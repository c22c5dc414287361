// Package policy has the IAM permissions that the controller needs, and no others.
//
// They are a table of statements (statements.go), each with the calls that it is for. Statements that Karpenter's published policy
// has, too, have its names and structure, so that the two can be compared line by line.
//
// With the identity of a cluster, every action that creates, terminates or tags a resource requires the tag with that identity: two
// clusters with the same name in one account can then never terminate each other's instances, whatever their controllers do.
package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/aws/aws-sdk-go-v2/aws/arn"

	"github.com/dovetail-k8s/dovetail/internal/aws/partition"
)

// Limits of IAM on the size of policies, in characters other than white space.
const (
	// ManagedLimit is that of a managed policy.
	ManagedLimit = 6144
	// InlineLimit is that of all inline policies of a role together.
	InlineLimit = 10240
)

// Any stands for every region or account.
const Any = "*"

// Params describes what the policy is for.
type Params struct {
	// Cluster is the name of the EKS cluster; required.
	Cluster string
	// Identity is the UID of the cluster's namespace kube-system; without it, only the cluster's name is required.
	Identity string
	// Region, Account; empty = any.
	Region, Account string
	// Partition; empty = that of the region.
	Partition string
	// NodeRoles are the roles that nodes may have, by name, path and name, or ARN. Default: KarpenterNodeRole-CLUSTER.
	NodeRoles []string
	// Queues are the SQS queues of interruptions, by name or ARN; none = no permission for any.
	Queues []string
	// Parameters are SSM parameters that node classes name, in addition to those that AWS publishes: names or ARNs, optionally with a
	// star at the end.
	Parameters []string
	// Reboots permits to reboot instances, which only the feature gate RebootForRepair needs.
	Reboots bool
	// ReadOnly leaves out all that changes something: shadow mode needs no more.
	ReadOnly bool
}

var (
	clusterPattern   = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_-]{0,99}$`)
	identityPattern  = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	regionPattern    = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-\d+$`)
	accountPattern   = regexp.MustCompile(`^\d{12}$`)
	partitionPattern = regexp.MustCompile(`^aws(-[a-z]+)*$`)
	rolePattern      = regexp.MustCompile(`^[\w+=,.@/-]+$`)
	queuePattern     = regexp.MustCompile(`^[\w-]{1,80}(\.fifo)?$`)
	parameterPattern = regexp.MustCompile(`^/?[\w./-]+\*?$`)
)

// withDefaults completes the parameters, or returns what is wrong with them.
func (p Params) withDefaults() (Params, error) {
	p.Region, p.Account = orAny(p.Region), orAny(p.Account)
	if p.Partition == "" {
		p.Partition = partition.Of(p.Region)
	}
	if len(p.NodeRoles) == 0 {
		p.NodeRoles = []string{"KarpenterNodeRole-" + p.Cluster}
	}
	switch {
	case p.Cluster == "":
		return p, errors.New("the cluster's name is required")
	case !clusterPattern.MatchString(p.Cluster):
		return p, fmt.Errorf("cluster %q: the name of an EKS cluster has letters, digits, - and _, 100 at most", p.Cluster)
	case p.Identity != "" && !identityPattern.MatchString(p.Identity):
		return p, fmt.Errorf("identity %q: not the UID of a namespace, such as 3f2c1a9e-7d44-4c0b-9a55-0d6e1f2b3c4d", p.Identity)
	case p.Region != Any && !regionPattern.MatchString(p.Region):
		return p, fmt.Errorf("region %q: not the name of a region, such as eu-west-1", p.Region)
	case p.Account != Any && !accountPattern.MatchString(p.Account):
		return p, fmt.Errorf("account %q: not twelve digits", p.Account)
	case !partitionPattern.MatchString(p.Partition):
		return p, fmt.Errorf("partition %q: not one of AWS, such as aws, aws-cn, aws-us-gov", p.Partition)
	}
	for _, list := range []struct {
		what, service string
		pattern       *regexp.Regexp
		names         []string
	}{
		{"node role", "iam", rolePattern, p.NodeRoles}, {"interruption queue", "sqs", queuePattern, p.Queues}, {
			"SSM parameter", "ssm",
			parameterPattern, p.Parameters,
		},
	} {
		for _, name := range list.names {
			parsed, err := arn.Parse(name)
			isARN := err == nil && parsed.Service == list.service
			if !isARN && !list.pattern.MatchString(name) {
				return p, fmt.Errorf("%s %q: neither a name nor an ARN of %s", list.what, name, list.service)
			}
		}
	}
	return p, nil
}

func orAny(s string) string {
	if s == "" {
		return Any
	}
	return s
}

// Conditions are the tests of a statement: operator, then key, then the values of which one has to match.
type Conditions map[string]map[string][]string

// Grant is an action with the calls of the controller that need it.
type Grant struct{ Action, For string }

// Statement allows actions on resources under conditions.
type Statement struct {
	Sid        string
	Grants     []Grant
	Resources  []string
	Conditions Conditions
}

// Actions are the granted actions, in the order of the table.
func (s Statement) Actions() []string {
	out := make([]string, len(s.Grants))
	for i, g := range s.Grants {
		out[i] = g.Action
	}
	return out
}

// MarshalJSON implements json.Marshaler: the statement in IAM's language.
func (s Statement) MarshalJSON() ([]byte, error) {
	conditions := map[string]map[string]any{}
	for operator, tests := range s.Conditions {
		conditions[operator] = map[string]any{}
		for key, values := range tests {
			conditions[operator][key] = oneOrMany(values)
		}
	}
	return json.Marshal(struct {
		Sid       string
		Effect    string
		Action    any
		Resource  any
		Condition map[string]map[string]any `json:",omitempty"`
	}{s.Sid, "Allow", oneOrMany(s.Actions()), oneOrMany(s.Resources), conditions})
}

func oneOrMany(values []string) any {
	if len(values) == 1 {
		return values[0]
	}
	return values
}

// Document is a policy.
type Document []Statement

// New returns the whole policy of a controller.
func New(p Params) (Document, error) {
	p, err := p.withDefaults()
	if err != nil {
		return nil, err
	}
	if p.ReadOnly {
		return readOnly(statements(p)), nil
	}
	return statements(p), nil
}

// Reads reports whether an action of AWS changes nothing, by its name.
func Reads(action string) bool {
	for _, prefix := range []string{"Describe", "Get", "List", "BatchGet"} {
		if strings.HasPrefix(action, prefix) {
			return true
		}
	}
	return false
}

// readOnly keeps the permissions to read.
func readOnly(all []Statement) (out []Statement) {
	for _, s := range all {
		s.Grants = slices.DeleteFunc(slices.Clone(s.Grants), func(g Grant) bool {
			_, action, _ := strings.Cut(g.Action, ":")
			return !Reads(action)
		})
		if len(s.Grants) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// MarshalJSON implements json.Marshaler: the policy in IAM's language.
func (d Document) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Version   string
		Statement []Statement
	}{"2012-10-17", d})
}

// JSON is the policy as text that people can read, with a newline at its end.
func (d Document) JSON() ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(d); err != nil {
		return nil, fmt.Errorf("write policy: %w", err)
	}
	return out.Bytes(), nil
}

// Size is the size of the policy as IAM counts it: all characters other than white space.
func (d Document) Size() (int, error) {
	text, err := d.JSON()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, r := range string(text) {
		if !unicode.IsSpace(r) {
			n++
		}
	}
	return n, nil
}

// Split divides the policy into as few policies as IAM's limit allows, in the order of its statements (next fit). It fails when one
// statement alone is too large.
func (d Document) Split(limit int) ([]Document, error) {
	var out []Document
	for _, s := range d {
		if len(out) > 0 {
			longer := append(slices.Clip(out[len(out)-1]), s)
			size, err := longer.Size()
			if err != nil {
				return nil, err
			}
			if size <= limit {
				out[len(out)-1] = longer
				continue
			}
		}
		alone := Document{s}
		size, err := alone.Size()
		if err != nil {
			return nil, err
		}
		if size > limit {
			return nil, fmt.Errorf("statement %s has %d characters, a policy may have %d", s.Sid, size, limit)
		}
		out = append(out, alone)
	}
	return out, nil
}
