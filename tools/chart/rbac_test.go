package chart

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// grants are the rules of each role of a file of manifests, by kind, namespace and name, and whom its bindings give them to.
func grants(t *testing.T, manifests string) map[string]any {
	t.Helper()
	out := map[string]any{}
	for doc := range strings.SplitSeq(manifests, "---\n") {
		var object struct {
			Kind     string
			Metadata struct {
				Name, Namespace string
				Labels          map[string]string
			}
			Rules    []rbacv1.PolicyRule
			RoleRef  rbacv1.RoleRef
			Subjects []rbacv1.Subject
		}
		if err := yaml.Unmarshal([]byte(doc), &object); err != nil {
			t.Fatal(err)
		}
		key := object.Kind + " " + object.Metadata.Namespace + "/" + object.Metadata.Name
		switch object.Kind {
		case "ClusterRole", "Role":
			out[key] = struct {
				Rules      []rbacv1.PolicyRule
				Aggregated string
			}{object.Rules, object.Metadata.Labels["rbac.authorization.k8s.io/aggregate-to-admin"]}
		case "ClusterRoleBinding", "RoleBinding":
			out[key] = struct {
				Role     rbacv1.RoleRef
				Subjects []rbacv1.Subject
			}{object.RoleRef, object.Subjects}
		}
	}
	return out
}

// The chart gives the controller what deploy/rbac.yaml does, which is what the lab runs it with: not more, not less.
func TestRights(t *testing.T) {
	text, err := os.ReadFile("../../deploy/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := standard.manifests(valuesOf(t, "{settings: {clusterName: shop}}"))
	if err != nil {
		t.Fatal(err)
	}
	want := grants(t, string(text))
	if len(want) < 7 {
		t.Fatalf("only %d roles and bindings", len(want))
	}
	if diff := cmp.Diff(want, grants(t, rendered)); diff != "" {
		t.Errorf("(-deploy/rbac.yaml +chart)\n%s", diff)
	}
}

// Anyone who names the lease otherwise may lead by it.
func TestRightsToTheLease(t *testing.T) {
	rendered, err := release{
		"dovetail",
		"dovetail",
		"autoscaling",
	}.manifests(
		valuesOf(t, "{settings: {clusterName: shop, leaderElectionName: mine, leaderElectionNamespace: leases}}"),
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"Role leases/dovetail", "RoleBinding leases/dovetail", "Role kube-system/dovetail-aws-auth"} {
		if _, ok := grants(t, rendered)[key]; !ok {
			t.Errorf("there is no %s", key)
		}
	}
	i := strings.Index(rendered, "resourceNames: [mine]")
	if i < 0 || slices.Contains(strings.Fields(rendered), "[karpenter-leader-election]") {
		t.Error("the lease is not the one that is named")
	}
}

// In shadow mode, the chart gives the controller what deploy/shadow.yaml does, with which the lab runs a shadow: rights to read, and
// those to write one ConfigMap by its name.
func TestRightsOfAShadow(t *testing.T) {
	text, err := os.ReadFile("../../deploy/shadow.yaml")
	if err != nil {
		t.Fatal(err)
	}
	beside := standard
	beside.name = "dovetail-shadow"
	rendered, err := beside.manifests(valuesOf(t, "{fullnameOverride: dovetail-shadow, settings: {clusterName: shop, shadow: true}}"))
	if err != nil {
		t.Fatal(err)
	}
	got := grants(t, rendered)
	if diff := cmp.Diff(grants(t, string(text)), got); diff != "" {
		t.Errorf("(-deploy/shadow.yaml +chart)\n%s", diff)
	}
	for key, grant := range got {
		role, ok := grant.(struct {
			Rules      []rbacv1.PolicyRule
			Aggregated string
		})
		if !ok {
			continue
		}
		for _, rule := range role.Rules {
			writes := slices.DeleteFunc(slices.Clone(rule.Verbs), func(v string) bool { return v == "get" || v == "list" || v == "watch" })
			if len(writes) > 0 && (key != "Role kube-system/dovetail-shadow" || !slices.Equal(rule.ResourceNames, []string{"dovetail-shadow"})) {
				t.Errorf("%s allows %v on %v", key, writes, rule.Resources)
			}
		}
	}
	if !strings.Contains(rendered, "name: SHADOW\n") {
		t.Error("the controller does not get the setting")
	}
}
