package migrate

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

func settingsChecks() []Check {
	return []Check{
		{ID: "settings", Title: "settings that have another effect, or none", needs: []doctor.Fact{Deployments}, run: checkSettings},
		{ID: "feature-gates", Title: "feature gates that are not supported", needs: []doctor.Fact{Deployments}, run: checkGates},
	}
}

// environment returns what the container of an installation has as text, as the kubelet expands it. Secrets are not read.
func (f *Facts) environment(i *Installation) map[string]string {
	out := map[string]string{}
	c := i.container()
	for _, from := range c.EnvFrom {
		if ref := from.ConfigMapRef; ref != nil {
			for key, value := range f.ConfigMaps[i.Namespace+"/"+ref.Name] {
				out[from.Prefix+key] = value
			}
		}
	}
	for _, v := range c.Env {
		switch {
		case v.ValueFrom == nil:
			out[v.Name] = expand(v.Value, out)
		case v.ValueFrom.ConfigMapKeyRef != nil:
			ref := v.ValueFrom.ConfigMapKeyRef
			if value, ok := f.ConfigMaps[i.Namespace+"/"+ref.Name][ref.Key]; ok {
				out[v.Name] = value
			}
		}
	}
	return out
}

// arguments returns those of the container, as the kubelet expands them. The first word of a command is the program. A line for a shell is
// read word by word, without what a shell makes of quotes and variables.
func (i *Installation) arguments(env map[string]string) (out []string) {
	c := i.container()
	for _, arg := range slices.Concat(c.Command[min(1, len(c.Command)):], c.Args) {
		arg = expand(arg, env)
		if strings.HasPrefix(arg, "-") || !strings.Contains(arg, " -") {
			out = append(out, arg)
			continue
		}
		for word := range strings.FieldsSeq(arg) {
			out = append(out, strings.NewReplacer(`"`, "", "'", "").Replace(word))
		}
	}
	return out
}

// variableReference is a variable in an argument or a value: $(NAME), or $$ in place of a dollar.
var variableReference = regexp.MustCompile(`\$\$|\$\([^)]*\)`)

// expand replaces references to variables. One that is not known stays, as with the kubelet.
func expand(text string, env map[string]string) string {
	return variableReference.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		if value, known := env[found[2:len(found)-1]]; known {
			return value
		}
		return found
	})
}

// ConfigMaps are the names of those that its environment comes from, in its namespace.
func (i *Installation) ConfigMaps() (out []string) {
	c := i.container()
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef != nil {
			out = append(out, from.ConfigMapRef.Name)
		}
	}
	for _, v := range c.Env {
		if v.ValueFrom != nil && v.ValueFrom.ConfigMapKeyRef != nil {
			out = append(out, v.ValueFrom.ConfigMapKeyRef.Name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// fromSecrets are the variables with values that are in Secrets, with the name of the Secret.
func (i *Installation) fromSecrets() (out []string) {
	c := i.container()
	for _, from := range c.EnvFrom {
		if from.SecretRef != nil {
			out = append(out, "all of Secret "+from.SecretRef.Name)
		}
	}
	for _, v := range c.Env {
		if v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil {
			out = append(out, v.Name)
		}
	}
	return out
}

// unread returns where a variable's value comes from, if it is not read; empty if it is, or if the container does not have the variable.
func (i *Installation) unread(variable string) string {
	c := i.container()
	for n := len(c.Env) - 1; n >= 0; n-- { // the last one counts
		v := c.Env[n]
		switch {
		case v.Name != variable:
		case v.ValueFrom == nil || v.ValueFrom.ConfigMapKeyRef != nil:
			return ""
		case v.ValueFrom.SecretKeyRef != nil:
			return "Secret " + v.ValueFrom.SecretKeyRef.Name
		default:
			return "a field of the pod or a file"
		}
	}
	for _, from := range c.EnvFrom {
		if from.SecretRef != nil && strings.HasPrefix(variable, from.Prefix) {
			return "Secret " + from.SecretRef.Name + ", if it has the key"
		}
	}
	return ""
}

// applied are the settings that an installation was started with, as Dovetail reads them.
type applied struct {
	settings.Settings
	flags *pflag.FlagSet
	// unreadable are environment variables that cannot be read as their type; unknown are arguments that are no flags.
	unreadable, unknown []string
	// refused are flags with values that cannot be read.
	refused []error
}

// ClusterName is the name of the EKS cluster that Karpenter has; empty if there is no Karpenter.
func (f *Facts) ClusterName() string {
	if k := f.Karpenter(); k != nil {
		return f.apply(k).ClusterName
	}
	return ""
}

// Gate reports whether Karpenter runs with a feature gate.
func (f *Facts) Gate(name string) bool {
	k := f.Karpenter()
	return k != nil && (f.apply(k).Gate(name) || f.apply(k).AWSGate(name))
}

// apply reads environment and arguments.
func (f *Facts) apply(i *Installation) *applied {
	env := f.environment(i)
	out := &applied{flags: pflag.NewFlagSet("controller", pflag.ContinueOnError)}
	out.unreadable = out.Bind(out.flags, func(name string) string { return env[name] })
	args := i.arguments(env)
	for n := 0; n < len(args); n++ {
		name, value, has := strings.Cut(strings.TrimLeft(args[n], "-"), "=")
		flag := out.flags.Lookup(name)
		switch {
		case !strings.HasPrefix(args[n], "-"):
			continue // a subcommand
		case flag == nil:
			unknown, _, _ := strings.Cut(args[n], "=") // the value may be a secret
			out.unknown = append(out.unknown, unknown)
			continue
		case has:
		case flag.NoOptDefVal != "":
			value = flag.NoOptDefVal
		case n+1 < len(args):
			n++
			value = args[n]
		}
		if err := out.flags.Set(name, value); err != nil {
			out.refused = append(out.refused, fmt.Errorf("--%s %q: %w", name, value, err))
		}
	}
	return out
}

// changed are the flags that differ from their defaults.
func (a *applied) changed() (out []*pflag.Flag) {
	var s settings.Settings
	defaults := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	s.Bind(defaults, func(string) string { return "" })
	a.flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Value.String() != defaults.Lookup(flag.Name).Value.String() {
			out = append(out, flag)
		}
	})
	return out
}

// settingsWithoutEffect are settings that are accepted only.
var settingsWithoutEffect = []string{"karpenter-service", "cpu-requests"}

// gone are variables of older versions of Karpenter, with what is done instead.
var gone = map[string]string{
	"ASSUME_ROLE_ARN":              "give the ServiceAccount the role itself",
	"ASSUME_ROLE_DURATION":         "give the ServiceAccount the role itself",
	"AWS_ENI_LIMITED_POD_DENSITY":  "set spec.kubelet.maxPods in the EC2NodeClasses",
	"AWS_DEFAULT_INSTANCE_PROFILE": "set spec.instanceProfile in the EC2NodeClasses",
}

func checkSettings(f *Facts) (out []Result, _ string) {
	k := f.Karpenter()
	if k == nil {
		return []Result{{Status: NotChecked, Seen: f.noKarpenter()}}, ""
	}
	a := f.apply(k)
	const env, args = "spec.template.spec.containers[].env", "spec.template.spec.containers[].args"
	warn := func(field, seen, remedy string) {
		out = append(out, Result{Status: Warning, Object: k.Object(), Field: field, Seen: seen, Remedy: remedy})
	}
	for _, name := range a.unreadable {
		warn(env+"["+name+"]", "cannot be read, and counts as not set, with Karpenter, too", "correct or remove it")
	}
	for _, arg := range a.unknown {
		warn(args, arg+" is not a setting of Dovetail", "do not carry it over: dovetail controller --help lists the settings")
	}
	for _, name := range k.fromSecrets() {
		warn(env, name+" is in a Secret, which was not read", "compare it with dovetail controller --help; the plan passes it on")
	}
	variables := f.environment(k)
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		if variables[name] != "" {
			warn(env+"["+name+"]", "has no effect", gone[name])
		}
	}
	for _, err := range slices.Concat(a.refused, problems(a.Settings)) {
		out = append(out, Result{
			Status: Obstacle, Object: k.Object(), Field: env, Seen: "Dovetail does not start with it: " + err.Error(),
			Remedy: "correct it in the values file that the plan prints",
		})
	}
	var carried []string
	for _, flag := range a.changed() {
		if !slices.Contains(settingsWithoutEffect, flag.Name) {
			carried = append(carried, flag.Name)
		}
	}
	return out, fmt.Sprintf("settings that differ from the defaults, and are carried over: %s", orNone(carried))
}

// problems are the settings that Dovetail refuses, but for those of feature gates, which have a check of their own.
func problems(s settings.Settings) (out []error) {
	s.FeatureGates, s.AWSFeatureGates = "", ""
	err := s.Validate()
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// always are gates that Karpenter 1 does not have any more: what they turned on is always on.
var always = []string{"Drift"}

func checkGates(f *Facts) (out []Result, _ string) {
	k := f.Karpenter()
	if k == nil {
		return []Result{{Status: NotChecked, Seen: f.noKarpenter()}}, ""
	}
	a := f.apply(k)
	var on []string
	for _, list := range []struct{ flag, variable, text string }{
		{"feature-gates", "FEATURE_GATES", a.FeatureGates}, {"aws-feature-gates", "AWS_FEATURE_GATES", a.AWSFeatureGates},
	} {
		field := "spec.template.spec.containers[].env[" + list.variable + "]"
		if where := k.unread(list.variable); where != "" && !a.flags.Changed(list.flag) {
			out = append(out, Result{
				Status: NotChecked, Object: k.Object(), Field: field, Seen: "its value is in " + where + ", which was not read",
			})
		}
		for entry := range strings.SplitSeq(list.text, ",") {
			name, value, _ := strings.Cut(entry, "=")
			name = strings.TrimSpace(name)
			set, err := strconv.ParseBool(strings.TrimSpace(value))
			switch {
			case strings.TrimSpace(entry) == "" || err == nil && !set || slices.Contains(always, name):
			case err != nil:
				out = append(out, Result{
					Status: Obstacle, Object: k.Object(), Field: field, Seen: fmt.Sprintf("%q is not NAME=true or NAME=false", entry),
					Remedy: "correct it: Dovetail does not start with it",
				})
			case !slices.Contains(settings.KnownGates(), name):
				out = append(out, Result{
					Status: Obstacle, Object: k.Object(), Field: field, Seen: "Dovetail does not have the gate " + name + ", which is on",
					Remedy: "turn it off, and check what you lose: " + name + "=false",
				})
			default:
				on = append(on, name)
			}
		}
	}
	return out, "gates that are on: " + orNone(on)
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
