// Package expression evaluates kubelet settings of a node class that are formulas over the instance type: maxPods as a
// string, and values of kubeReserved and systemReserved that are not quantities. The language is CEL.
//
// The capacity for scheduling and the user data of the node come from the same evaluation.
package expression

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

// Variables are the inputs of an expression for one instance type.
type Variables struct {
	InstanceType     string // instance_type
	VCPUs, MemoryMiB int64  // vcpus, memory_mib
	// ENIs counts how many interfaces the default network card supports, IPsPerENI how many IPv4 addresses each of them
	// has.
	ENIs, IPsPerENI int64 // default_enis, ips_per_eni
}

// costLimit bounds the work of one evaluation. A formula over five numbers costs some dozens, so the limit stops only
// expressions with nested loops.
const costLimit = 10_000

// Compiler compiles expressions. It is immutable and safe for concurrent use.
type Compiler struct{ env *cel.Env }

// NewCompiler returns a Compiler. An error is a bug in this program.
func NewCompiler() (*Compiler, error) {
	env, err := cel.NewEnv(append(slices.Concat(extremum("min", less), extremum("max", more)),
		cel.Variable("vcpus", cel.IntType),
		cel.Variable("memory_mib", cel.IntType),
		cel.Variable("default_enis", cel.IntType),
		cel.Variable("ips_per_eni", cel.IntType),
		cel.Variable("max_pods", cel.IntType),
		cel.Variable("instance_type", cel.StringType),
	)...)
	if err != nil {
		return nil, fmt.Errorf("prepare expressions: %w", err)
	}
	return &Compiler{env: env}, nil
}

func less(a, b float64) bool { return a < b }
func more(a, b float64) bool { return a > b }

// extremum is a function of two numbers that returns one of them, as a double if their types differ.
func extremum(name string, better func(a, b float64) bool) []cel.EnvOption {
	var options []cel.EnvOption
	for _, kinds := range [][2]*cel.Type{
		{cel.IntType, cel.IntType},
		{cel.DoubleType, cel.DoubleType},
		{cel.IntType, cel.DoubleType},
		{cel.DoubleType, cel.IntType},
	} {
		result := cel.DoubleType
		if kinds[0] == cel.IntType && kinds[1] == cel.IntType {
			result = cel.IntType
		}
		options = append(options, cel.Function(name, cel.Overload(
			fmt.Sprintf("%s_%s_%s", name, kinds[0], kinds[1]), []*cel.Type{kinds[0], kinds[1]}, result,
			cel.BinaryBinding(func(a, b ref.Val) ref.Val {
				x, xIsInt := a.(types.Int)
				y, yIsInt := b.(types.Int)
				if xIsInt && yIsInt { // compared as integers: not all of them are doubles
					if (x < y) == better(0, 1) {
						return x
					}
					return y
				}
				p, q := double(a), double(b)
				if better(q, p) {
					return types.Double(q)
				}
				return types.Double(p)
			}))))
	}
	return options
}

func double(v ref.Val) float64 {
	if n, ok := v.(types.Int); ok {
		return float64(n)
	}
	d, _ := v.(types.Double)
	return float64(d)
}

// program is one expression, ready to run.
type program struct {
	// field is the path of the expression, for example kubeReserved.memory.
	field, text string
	run         cel.Program
}

// InvalidError is an expression that does not compile to a number.
type InvalidError struct {
	Field, Text string
	Err         error
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("spec.kubelet.%s: %q: %v", e.Field, e.Text, e.Err)
}
func (e *InvalidError) Unwrap() error { return e.Err }

// Settings are the kubelet settings of a node class, with their expressions compiled.
type Settings struct {
	kubelet  awsv1.KubeletConfiguration
	programs map[string]program // by field
}

// Compile compiles the expressions. The error is an *InvalidError of the first expression, in the order of fields, that
// does not compile.
func (c *Compiler) Compile(kubelet awsv1.KubeletConfiguration) (*Settings, error) {
	s := &Settings{kubelet: kubelet, programs: map[string]program{}}
	texts := Find(kubelet)
	for _, field := range slices.Sorted(maps.Keys(texts)) {
		p, err := c.compile(texts[field])
		if err != nil {
			return nil, &InvalidError{Field: field, Text: texts[field], Err: err}
		}
		s.programs[field] = program{field: field, text: texts[field], run: p}
	}
	return s, nil
}

func (c *Compiler) compile(text string) (cel.Program, error) {
	ast, issues := c.env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	if t := ast.OutputType(); !t.IsExactType(cel.IntType) && !t.IsExactType(cel.DoubleType) {
		return nil, fmt.Errorf("the result is of type %s, neither int nor double", t)
	}
	return c.env.Program(ast, cel.CostLimit(costLimit))
}

const maxPods = "maxPods"

// Find returns the expressions in the settings, by field.
func Find(k awsv1.KubeletConfiguration) map[string]string {
	out := map[string]string{}
	if k.MaxPods != nil && k.MaxPods.Type == intstr.String {
		out[maxPods] = k.MaxPods.StrVal
	}
	for name, reserved := range map[string]map[string]string{"kubeReserved": k.KubeReserved, "systemReserved": k.SystemReserved} {
		for key, value := range reserved {
			if _, err := resource.ParseQuantity(value); err != nil {
				out[name+"."+key] = value
			}
		}
	}
	return out
}

// FailedError is an expression that fails for an instance type.
type FailedError struct {
	Field, Text, InstanceType string
	Err                       error
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("spec.kubelet.%s: %q fails for %s: %v", e.Field, e.Text, e.InstanceType, e.Err)
}
func (e *FailedError) Unwrap() error { return e.Err }

// HasExpressions reports whether there are expressions.
func (s *Settings) HasExpressions() bool { return len(s.programs) > 0 }

// Kubelet returns the settings with expressions evaluated for an instance type. pods returns how many pods the node
// supports under given settings. Expressions read it as max_pods: that of maxPods with maxPods unset, the others with
// its result. The error is a *FailedError.
func (s *Settings) Kubelet(m Variables, pods func(awsv1.KubeletConfiguration) int64) (awsv1.KubeletConfiguration, error) {
	k := s.kubelet
	if !s.HasExpressions() {
		return k, nil
	}
	if p, ok := s.programs[maxPods]; ok {
		k.MaxPods = nil
		n, err := p.value(m, pods(k))
		if err == nil && (n < 0 || n > math.MaxInt32) {
			err = fmt.Errorf("%d is not a valid number of pods", n)
		}
		if err != nil {
			return k, p.failed(m, err)
		}
		value := intstr.FromInt32(int32(n))
		k.MaxPods = &value
	}
	resolved := pods(k)
	var err error
	if k.KubeReserved, err = s.reserved("kubeReserved", k.KubeReserved, m, resolved); err != nil {
		return k, err
	}
	k.SystemReserved, err = s.reserved("systemReserved", k.SystemReserved, m, resolved)
	return k, err
}

// reserved evaluates the expressions of one of the two maps. It does not change the map.
func (s *Settings) reserved(name string, values map[string]string, m Variables, pods int64) (map[string]string, error) {
	out := maps.Clone(values)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		p, ok := s.programs[name+"."+key]
		if !ok {
			continue
		}
		n, err := p.value(m, pods)
		if err == nil && n < 0 {
			err = fmt.Errorf("%d is negative", n)
		}
		if err != nil {
			return values, p.failed(m, err)
		}
		out[key] = quantity(key, n)
	}
	return out, nil
}

func (p program) failed(m Variables, err error) error {
	return &FailedError{Field: p.field, Text: p.text, InstanceType: m.InstanceType, Err: err}
}

// value is the result as a whole number; the fraction of a double is cut off.
func (p program) value(m Variables, pods int64) (int64, error) {
	out, _, err := p.run.Eval(map[string]any{
		"vcpus": m.VCPUs, "memory_mib": m.MemoryMiB, "default_enis": m.ENIs, "ips_per_eni": m.IPsPerENI,
		"max_pods": pods, "instance_type": m.InstanceType,
	})
	if err != nil {
		return 0, err
	}
	switch v := out.(type) {
	case types.Int:
		return int64(v), nil
	case types.Double:
		whole := math.Trunc(float64(v))
		if math.IsNaN(whole) || whole < math.MinInt64 || whole >= math.MaxInt64 {
			return 0, fmt.Errorf("%v is out of range", float64(v))
		}
		return int64(whole), nil
	}
	return 0, fmt.Errorf("the result is %v, not a number", out)
}

// roundingSteps are the units of reserved resources, and the step to which their numbers are rounded up, so that
// similar instance types share a launch template.
var roundingSteps = map[string]struct {
	unit string
	step int64
}{
	"cpu":               {"m", 10},
	"memory":            {"Mi", 16},
	"ephemeral-storage": {"Gi", 1},
}

// quantity formats a reserved amount of a resource.
func quantity(key string, n int64) string {
	s, ok := roundingSteps[key]
	if !ok {
		return strconv.FormatInt(n, 10) // pid
	}
	if up := (s.step - n%s.step) % s.step; n <= math.MaxInt64-up {
		n += up
	}
	return strconv.FormatInt(n, 10) + s.unit
}

// ResolvedJSON returns spec.kubelet as JSON, with the results of its expressions.
func ResolvedJSON(raw []byte, resolved awsv1.KubeletConfiguration) ([]byte, error) {
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("spec.kubelet: %w", err)
	}
	if resolved.MaxPods != nil {
		fields["maxPods"] = resolved.MaxPods
	}
	for name, reserved := range map[string]map[string]string{
		"kubeReserved":   resolved.KubeReserved,
		"systemReserved": resolved.SystemReserved,
	} {
		if len(reserved) > 0 {
			fields[name] = reserved
		}
	}
	return json.Marshal(fields)
}
