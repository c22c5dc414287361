package chart

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// file renders a template of the chart; empty if it comes to nothing.
func file(t *testing.T, name, values string) string {
	t.Helper()
	rendered, err := standard.render(valuesOf(t, values))
	if err != nil {
		t.Fatal(err)
	}
	return rendered["dovetail/templates/"+name]
}

func decoded[T any](t *testing.T, text string) T {
	t.Helper()
	var out T
	if err := yaml.UnmarshalStrict([]byte(text), &out); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return out
}

// The rights to have clients' tokens checked are given only where they are used.
func TestRightsToReviewTokensComeWithWhatIsProtected(t *testing.T) {
	for _, tt := range []struct{ name, file, values string }{
		{"metrics", "metricsrbac.yaml", "metrics: {secure: true}"}, {"console", "consolerbac.yaml", "console: {port: 8484}"},
	} {
		if text := file(t, tt.file, "{settings: {clusterName: shop}}"); text != "" {
			t.Errorf("%s: nothing is protected, and there is\n%s", tt.name, text)
		}
		text := file(t, tt.file, "{settings: {clusterName: shop}, controller: {"+tt.values+"}}")
		docs := strings.Split(text, "---\n")
		if len(docs) != 3 {
			t.Fatalf("%s: %d objects in\n%s", tt.name, len(docs), text)
		}
		want := []rbacv1.PolicyRule{
			{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
			{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
		}
		auth, bound := decoded[rbacv1.ClusterRole](t, docs[0]), decoded[rbacv1.ClusterRoleBinding](t, docs[1])
		if diff := cmp.Diff(want, auth.Rules); diff != "" || bound.RoleRef.Name != auth.Name || bound.Subjects[0].Name != "dovetail" {
			t.Errorf("%s is bound to %v, rules (-want +got)\n%s", bound.RoleRef.Name, bound.Subjects, diff)
		}
		reader := decoded[rbacv1.ClusterRole](t, docs[2])
		right := []rbacv1.PolicyRule{{NonResourceURLs: []string{"/" + tt.name}, Verbs: []string{"get"}}}
		if diff := cmp.Diff(right, reader.Rules); diff != "" || reader.Name != "dovetail-"+tt.name+"-reader" {
			t.Errorf("%s (-want +got)\n%s", reader.Name, diff)
		}
	}
}

// The port of the console is open only where somebody wants it.
func TestTheConsoleHasAPortOnDemand(t *testing.T) {
	for _, tt := range []struct {
		values string
		want   bool
	}{{"{settings: {clusterName: shop}}", false}, {"{settings: {clusterName: shop}, controller: {console: {port: 8484}}}", true}} {
		for _, name := range []string{"deployment.yaml", "service.yaml"} {
			if got := strings.Contains(file(t, name, tt.values), "name: console\n"); got != tt.want {
				t.Errorf("%s of %s: the console has a port: %v", name, tt.values, got)
			}
		}
	}
}

// The ServiceMonitor follows: it comes by HTTPS with its token, unless the user states otherwise.
func TestSecureMetricsAreScrapedByHTTPS(t *testing.T) {
	type monitor struct {
		Spec struct{ Endpoints []map[string]any }
	}
	endpoint := func(values string) map[string]any {
		text := file(t, "servicemonitor.yaml", "{settings: {clusterName: shop}, serviceMonitor: {enabled: true"+values)
		var m monitor
		if err := yaml.Unmarshal([]byte(text), &m); err != nil || len(m.Spec.Endpoints) != 1 {
			t.Fatalf("%v in\n%s", err, text)
		}
		return m.Spec.Endpoints[0]
	}
	plain := map[string]any{"port": "http-metrics", "path": "/metrics"}
	if diff := cmp.Diff(plain, endpoint("}}")); diff != "" {
		t.Errorf("open metrics (-want +got)\n%s", diff)
	}
	secure := map[string]any{
		"port": "http-metrics", "path": "/metrics", "scheme": "https", "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
		"tlsConfig": map[string]any{"insecureSkipVerify": true},
	}
	if diff := cmp.Diff(secure, endpoint("}, controller: {metrics: {secure: true}}}")); diff != "" {
		t.Errorf("secure metrics (-want +got)\n%s", diff)
	}
	secure["tlsConfig"] = map[string]any{"serverName": "dovetail.kube-system.svc"}
	own := ", endpointConfig: {tlsConfig: {serverName: dovetail.kube-system.svc}}}, controller: {metrics: {secure: true, certDir: /certs}}}"
	if diff := cmp.Diff(secure, endpoint(own)); diff != "" {
		t.Errorf("secure metrics with a certificate (-want +got)\n%s", diff)
	}
}

// Metrics and probes stay reachable behind a NetworkPolicy, and nothing else is.
func TestNetworkPolicyLetsMetricsAndProbesIn(t *testing.T) {
	if text := file(t, "networkpolicy.yaml", "{settings: {clusterName: shop}}"); text != "" {
		t.Errorf("nobody wants a policy, and there is\n%s", text)
	}
	const values = "{settings: {clusterName: shop}, controller: {metrics: {port: 9090}, healthProbe: {port: 9091}}, networkPolicy: {enabled: true"
	port := func(n int) []networkingv1.NetworkPolicyPort {
		tcp, p := corev1.ProtocolTCP, intstr.FromInt(n)
		return []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &p}}
	}
	policy := decoded[networkingv1.NetworkPolicy](t, file(t, "networkpolicy.yaml", values+"}}"))
	deployment := decoded[appsv1.Deployment](t, file(t, "deployment.yaml", values+"}}"))
	if diff := cmp.Diff(deployment.Spec.Selector.MatchLabels, policy.Spec.PodSelector.MatchLabels); diff != "" {
		t.Errorf("pods (-deployment +policy)\n%s", diff)
	}
	anyPod := []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}
	want := []networkingv1.NetworkPolicyIngressRule{{Ports: port(9090), From: anyPod}, {Ports: port(9091)}}
	if diff := cmp.Diff(want, policy.Spec.Ingress); diff != "" {
		t.Errorf("ingress (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, policy.Spec.PolicyTypes); diff != "" ||
		policy.Spec.Egress != nil {
		t.Errorf("what goes out is limited: %v %v", policy.Spec.PolicyTypes, policy.Spec.Egress)
	}
	limited := decoded[networkingv1.NetworkPolicy](t, file(t, "networkpolicy.yaml", values+", egress: [{ports: [{port: 443}]}]}}"))
	if len(limited.Spec.PolicyTypes) != 2 || len(limited.Spec.Egress) != 1 {
		t.Errorf("what goes out is not limited: %v %v", limited.Spec.PolicyTypes, limited.Spec.Egress)
	}
}

// The controller has requests and a limit of memory by default; anyone who sets some gets exactly these.
func TestResourcesAreTheUsersOrTheDefault(t *testing.T) {
	resources := func(values string) corev1.ResourceRequirements {
		d := decoded[appsv1.Deployment](t, file(t, "deployment.yaml", values))
		return d.Spec.Template.Spec.Containers[0].Resources
	}
	standard := resources("{settings: {clusterName: shop}}")
	if standard.Requests.Cpu().IsZero() || standard.Requests.Memory().IsZero() ||
		standard.Limits.Memory().Cmp(*standard.Requests.Memory()) < 0 {
		t.Errorf("by default %+v", standard)
	}
	if !standard.Limits.Cpu().IsZero() {
		t.Error("a limit of CPU makes plans late under load")
	}
	own := resources("{settings: {clusterName: shop}, controller: {resources: {requests: {memory: 8Gi}}}}")
	if own.Requests.Memory().String() != "8Gi" || len(own.Limits) > 0 || len(own.Requests) != 1 {
		t.Errorf("the user's resources come to %+v", own)
	}
}
