package migrate

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/settings"
	"github.com/dovetail-k8s/dovetail/internal/settings/chartvalue"
)

// Values are the values of the chart dovetail that make it start as Karpenter was started.
type Values map[string]any

// set sets the value at a path such as settings.clusterName.
func (v Values) set(path string, value any) {
	at := map[string]any(v)
	keys := strings.Split(path, ".")
	for _, key := range keys[:len(keys)-1] {
		next, ok := at[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[key] = next
		}
		at = next
	}
	at[keys[len(keys)-1]] = value
}

// setObject sets the value to an object as manifests have it.
func (v Values) setObject(path string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		return // objects of the Kubernetes API can be written
	}
	var plain any
	if json.Unmarshal(text, &plain) == nil {
		v.set(path, plain)
	}
}

// The defaults of the chart, which values leave out.
const (
	defaultReplicas  = 2
	defaultPriority  = "system-cluster-critical"
	defaultScheduler = corev1.DefaultSchedulerName
)

// values translates the Deployment of Karpenter. notCarried is what a person has to look at.
func (f *Facts) values(k *Installation) (v Values, notCarried []string) {
	v = Values{}
	f.settingValues(v, k)
	notCarried = f.variables(v, k)
	v.set("serviceAccount.create", false)
	v.set("serviceAccount.name", k.ServiceAccount)
	if f.RoleARN != "" && !f.RoleByPodIdentity {
		v.set("serviceAccount.annotations", map[string]any{"eks.amazonaws.com/role-arn": f.RoleARN})
	}
	if k.Replicas != defaultReplicas && k.Replicas > 0 {
		v.set("replicas", k.Replicas)
	}
	if r := k.container().Resources; len(r.Requests)+len(r.Limits) > 0 {
		v.setObject("controller.resources", corev1.ResourceRequirements{Requests: r.Requests, Limits: r.Limits})
	}
	podValues(v, k)
	pod := &k.deployment.Spec.Template.Spec
	for i := range pod.Containers {
		if c := &pod.Containers[i]; c != k.container() {
			notCarried = append(notCarried, "container "+c.Name+" (controller.sidecarContainer)")
		}
	}
	for i := range pod.InitContainers {
		notCarried = append(notCarried, "init container "+pod.InitContainers[i].Name+" (initContainers)")
	}
	for i := range pod.Volumes {
		notCarried = append(notCarried, "volume "+pod.Volumes[i].Name+" (extraVolumes, controller.extraVolumeMounts)")
	}
	return v, notCarried
}

// settingValues sets the settings that differ from their defaults.
func (f *Facts) settingValues(v Values, k *Installation) {
	a := f.apply(k)
	for _, flag := range a.changed() {
		path := chartvalue.Of(flag.Name)
		switch {
		case path == "":
		case flag.Name == "feature-gates":
			gates(v, path, flag.Value.String(), a.Gate)
		case flag.Name == "aws-feature-gates":
			gates(v, path, flag.Value.String(), a.AWSGate)
		case strings.HasSuffix(flag.Name, "-output-paths"):
			v.set(path, asAny(strings.Split(flag.Value.String(), ",")))
		default:
			v.set(path, typed(flag))
		}
	}
}

func asAny(list []string) (out []any) {
	for _, s := range list {
		out = append(out, s)
	}
	return out
}

// typed is the value of a flag as the schema of the chart has it.
func typed(flag *pflag.Flag) any {
	text := flag.Value.String()
	switch flag.Value.Type() {
	case "bool":
		return text == "true"
	case "int", "int64":
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	case "float64":
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return n
		}
	}
	return text
}

// gates sets the known gates that are named in text.
func gates(v Values, path, text string, on func(name string) bool) {
	for _, name := range settings.KnownGates() {
		named := slices.ContainsFunc(strings.Split(text, ","), func(entry string) bool {
			named, _, _ := strings.Cut(entry, "=")
			return strings.TrimSpace(named) == name
		})
		if named {
			v.set(path+"."+gateValue(name), on(name))
		}
	}
}

// gateValue is the name of a gate's value: nodeRepair of NodeRepair, draEFA of DRAEFA.
func gateValue(name string) string {
	if rest, ok := strings.CutPrefix(name, "DRA"); ok {
		return "dra" + rest
	}
	return strings.ToLower(name[:1]) + name[1:]
}

// ownVariables are environment variables that the chart of Karpenter sets, and that of Dovetail sets itself or does not need.
var ownVariables = []string{
	"KUBERNETES_MIN_VERSION", "SYSTEM_NAMESPACE", "MEMORY_LIMIT", "CPU_REQUESTS", "KARPENTER_SERVICE", "DISABLE_WEBHOOK", "WEBHOOK_PORT",
	"WEBHOOK_METRICS_PORT", "RECORDER_PATH",
}

// variables carries over the environment that is no setting, such as AWS_REGION and proxies.
func (f *Facts) variables(v Values, k *Installation) (notCarried []string) {
	settingOf := map[string]bool{}
	f.apply(k).flags.VisitAll(func(flag *pflag.Flag) {
		settingOf[strings.ReplaceAll(strings.ToUpper(flag.Name), "-", "_")] = true
	})
	c := k.container()
	var kept []corev1.EnvVar
	for _, e := range c.Env {
		secret := e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil
		if slices.Contains(ownVariables, e.Name) || gone[e.Name] != "" || settingOf[e.Name] && !secret {
			continue
		}
		if isCredential(e) {
			notCarried = append(notCarried, "variable "+e.Name+", which has a credential: give it by a Secret (controller.env, valueFrom.secretKeyRef)")
			continue
		}
		kept = append(kept, e)
	}
	if len(kept) > 0 {
		v.setObject("controller.env", kept)
	}
	if len(c.EnvFrom) > 0 {
		v.setObject("controller.envFrom", c.EnvFrom)
	}
	for _, arg := range f.apply(k).unknown {
		notCarried = append(notCarried, "argument "+arg)
	}
	return notCarried
}

var (
	credentialName = regexp.MustCompile(`(?i)secret|token|password|passwd|credential|(api|private)_?key`)
	locationName   = regexp.MustCompile(`(?i)_(file|path|dir|ur[il])$`)
	userInURL      = regexp.MustCompile(`://[^/@]*:[^/@]*@`)
)

// isCredential reports whether a variable has a credential as text, by its name, or as the password in a URL. The values are printed,
// and often committed: they must not have it.
func isCredential(e corev1.EnvVar) bool {
	named := credentialName.MatchString(e.Name) && !locationName.MatchString(e.Name)
	return e.Value != "" && (named || userInURL.MatchString(e.Value))
}

// podValues carries over where and how the pods run.
func podValues(v Values, k *Installation) {
	pod := &k.deployment.Spec.Template.Spec
	if p := pod.PriorityClassName; p != defaultPriority && p != "" {
		v.set("priorityClassName", p)
	}
	if pod.HostNetwork {
		v.set("hostNetwork", true)
	}
	if s := pod.SchedulerName; s != "" && s != defaultScheduler {
		v.set("schedulerName", s)
	}
	if p := pod.DNSPolicy; p != "" && p != corev1.DNSClusterFirst {
		v.set("dnsPolicy", string(p))
	}
	if pod.DNSConfig != nil {
		v.setObject("dnsConfig", pod.DNSConfig)
	}
	if len(pod.ImagePullSecrets) > 0 {
		v.setObject("imagePullSecrets", pod.ImagePullSecrets)
	}
	if !maps.Equal(pod.NodeSelector, map[string]string{corev1.LabelOSStable: "linux"}) && len(pod.NodeSelector) > 0 {
		v.setObject("nodeSelector", pod.NodeSelector)
	}
	critical := []corev1.Toleration{{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists}}
	if !equality.Semantic.DeepEqual(pod.Tolerations, critical) {
		v.setObject("tolerations", slices.Clip(append([]corev1.Toleration{}, pod.Tolerations...)))
	}
	if spread := k.ownSpread(); !equality.Semantic.DeepEqual(spread, defaultSpread) {
		v.setObject("topologySpreadConstraints", append([]corev1.TopologySpreadConstraint{}, spread...))
	}
	if affinity := k.ownAffinity(); affinity != nil {
		v.setObject("affinity", affinity)
	}
	labels := own(k.deployment.Spec.Template.Labels, "app.kubernetes.io/")
	for _, key := range k.selectorKeys() {
		delete(labels, key) // or Karpenter's Service would send its webhooks to Dovetail
	}
	if len(labels) > 0 {
		v.setObject("podLabels", labels)
	}
	if annotations := own(k.deployment.Spec.Template.Annotations, "kubectl.kubernetes.io/", "checksum/"); len(annotations) > 0 {
		v.setObject("podAnnotations", annotations)
	}
}

// selectorKeys are the labels by which the installation's pods are selected.
func (i *Installation) selectorKeys() (out []string) {
	s := i.deployment.Spec.Selector
	if s == nil {
		return nil
	}
	out = slices.Collect(maps.Keys(s.MatchLabels))
	for _, e := range s.MatchExpressions {
		out = append(out, e.Key)
	}
	return out
}

// own are the entries without those of some prefixes.
func own(all map[string]string, prefixes ...string) map[string]string {
	out := map[string]string{}
	for key, value := range all {
		if !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(key, p) }) {
			out[key] = value
		}
	}
	return out
}

var defaultSpread = []corev1.TopologySpreadConstraint{{
	MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
}}

// selectsItself reports whether a selector is that of the installation's own pods. The chart fills in its own where there is none.
func (i *Installation) selectsItself(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchExpressions) == 0 && maps.Equal(s.MatchLabels, i.deployment.Spec.Selector.MatchLabels)
}

// ownSpread are the spread constraints, without selectors of the installation's own pods.
func (i *Installation) ownSpread() []corev1.TopologySpreadConstraint {
	out := slices.Clone(i.deployment.Spec.Template.Spec.TopologySpreadConstraints)
	for n := range out {
		if i.selectsItself(out[n].LabelSelector) {
			out[n].LabelSelector = nil
		}
	}
	return out
}

// ownAffinity is the affinity, without selectors of the installation's own pods; nil if it is the default of the chart.
func (i *Installation) ownAffinity() *corev1.Affinity {
	out := i.deployment.Spec.Template.Spec.Affinity.DeepCopy()
	if out == nil {
		return nil
	}
	strip := func(terms []corev1.PodAffinityTerm) {
		for n := range terms {
			if i.selectsItself(terms[n].LabelSelector) {
				terms[n].LabelSelector = nil
			}
		}
	}
	weighted := func(terms []corev1.WeightedPodAffinityTerm) {
		for n := range terms {
			if i.selectsItself(terms[n].PodAffinityTerm.LabelSelector) {
				terms[n].PodAffinityTerm.LabelSelector = nil
			}
		}
	}
	if p := out.PodAffinity; p != nil {
		strip(p.RequiredDuringSchedulingIgnoredDuringExecution)
		weighted(p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := out.PodAntiAffinity; p != nil {
		strip(p.RequiredDuringSchedulingIgnoredDuringExecution)
		weighted(p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if equality.Semantic.DeepEqual(out, defaultAffinity) {
		return nil
	}
	return out
}

var defaultAffinity = &corev1.Affinity{
	NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: "karpenter.sh/nodepool", Operator: corev1.NodeSelectorOpDoesNotExist,
		}}}},
	}},
	PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname}},
	},
}
