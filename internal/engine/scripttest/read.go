package scripttest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// line is one line of a script.
type line struct {
	command string
	words   []string
}

// parseLine splits a line; "#" starts a comment.
func parseLine(text string) line {
	text, _, _ = strings.Cut(text, "#")
	words := strings.Fields(text)
	if len(words) == 0 {
		return line{}
	}
	return line{words[0], words[1:]}
}

// name takes the first word, which is no argument.
func (l *line) name() (string, error) {
	if len(l.words) == 0 || strings.Contains(l.words[0], "=") {
		return "", fmt.Errorf("%s: expected a name after %q", l.command, l.command)
	}
	name := l.words[0]
	l.words = l.words[1:]
	return name, nil
}

// arguments are the arguments that a command has: "key", "key:" for key:ANYTHING=value, and words without a value with a dash
// in front.
type arguments map[string]func(key, value string) error

// take passes each word of the line to its argument.
func (l *line) take(known arguments) error {
	for _, word := range l.words {
		key, value, valued := strings.Cut(word, "=")
		kind, rest, prefixed := strings.Cut(key, ":")
		id := key
		switch {
		case !valued:
			id = "-" + key
		case prefixed:
			id = kind + ":"
		}
		set := known[id]
		if set == nil {
			return fmt.Errorf("%s: %q is not known here; expected one of %s", l.command, word, argumentNames(known))
		}
		if valued && value == "" {
			return fmt.Errorf("%s: %s has no value", l.command, key)
		}
		if err := set(rest, value); err != nil {
			return fmt.Errorf("%s: %s: %w", l.command, key, err)
		}
	}
	return nil
}

// argumentNames lists arguments as they are written.
func argumentNames(known arguments) string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(known)) {
		switch {
		case strings.HasPrefix(id, "-"):
			out = append(out, id[1:])
		case strings.HasSuffix(id, ":"):
			out = append(out, id+"KEY=...")
		default:
			out = append(out, id+"=...")
		}
	}
	return strings.Join(out, ", ")
}

// shortLabels are abbreviations of labels that scripts use often.
var shortLabels = map[string]string{
	"zone": corev1.LabelTopologyZone, "host": corev1.LabelHostname, "arch": corev1.LabelArchStable, "os": corev1.LabelOSStable,
	"type": corev1.LabelInstanceTypeStable, "capacity": karpv1.LabelCapacityType, "pool": karpv1.LabelNodePool,
}

func label(short string) string {
	if long, ok := shortLabels[short]; ok {
		return long
	}
	return short
}

// expression reads what is required of a label: "a,b", "!a,b" (not these), "*" (any), "!*" (none), ">3", "<3".
func expression(key, value string) corev1.NodeSelectorRequirement {
	r := corev1.NodeSelectorRequirement{Key: label(key), Operator: corev1.NodeSelectorOpIn, Values: strings.Split(value, ",")}
	switch {
	case value == "*":
		r.Operator, r.Values = corev1.NodeSelectorOpExists, nil
	case value == "!*":
		r.Operator, r.Values = corev1.NodeSelectorOpDoesNotExist, nil
	case value[0] == '!':
		r.Operator, r.Values = corev1.NodeSelectorOpNotIn, strings.Split(value[1:], ",")
	case value[0] == '>':
		r.Operator, r.Values = corev1.NodeSelectorOpGt, []string{value[1:]}
	case value[0] == '<':
		r.Operator, r.Values = corev1.NodeSelectorOpLt, []string{value[1:]}
	}
	return r
}

// taint reads KEY[=VALUE]:EFFECT.
func taint(text string) (corev1.Taint, error) {
	head, effect, ok := strings.Cut(text, ":")
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	if !ok || !slices.Contains(effects, corev1.TaintEffect(effect)) {
		return corev1.Taint{}, fmt.Errorf("expected KEY:EFFECT or KEY=VALUE:EFFECT, with one of the effects %v, not %q", effects, text)
	}
	key, value, _ := strings.Cut(head, "=")
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}, nil
}

// resourceNames are abbreviations of resources that scripts use often.
var resourceNames = map[string]corev1.ResourceName{
	"mem":  corev1.ResourceMemory,
	"gpu":  "nvidia.com/gpu",
	"disk": corev1.ResourceEphemeralStorage,
}

func quantity(into corev1.ResourceList, name, value string) error {
	q, err := resource.ParseQuantity(value)
	if err != nil {
		return fmt.Errorf("expected a quantity such as 500m or 2Gi, not %q", value)
	}
	if long, ok := resourceNames[name]; ok {
		name = string(long)
	}
	into[corev1.ResourceName(name)] = q
	return nil
}

// amounts are arguments for a list of resources.
func amounts(into corev1.ResourceList, names ...string) arguments {
	out := arguments{}
	for _, name := range names {
		out[name] = func(_, value string) error { return quantity(into, name, value) }
	}
	return out
}

func number(value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("expected a number, not %q", value)
	}
	return n, nil
}

func price(value string) (float64, error) {
	p, err := strconv.ParseFloat(strings.TrimPrefix(value, "$"), 64)
	if err != nil || p < 0 {
		return 0, fmt.Errorf("expected a price in $/h, not %q", value)
	}
	return p, nil
}

// oneOf checks a word.
func oneOf(value string, words ...string) error {
	if slices.Contains(words, value) {
		return nil
	}
	return fmt.Errorf("expected one of %s, not %q", strings.Join(words, ", "), value)
}

// pair reads A/B.
func pair(value, want string) (a, b string, err error) {
	a, b, ok := strings.Cut(value, "/")
	if !ok || a == "" || b == "" {
		return "", "", errors.New("expected " + want + ", not " + strconv.Quote(value))
	}
	return a, b, nil
}
