package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// refused is what the API server answers to a user without a permission.
func refused(verb, group, resource string) error { return refusedTo("jo", verb, group, resource) }

func refusedTo(user, verb, group, resource string) error {
	why := fmt.Errorf("User %q cannot %s resource %q in API group %q at the cluster scope", user, verb, resource, group)
	of, _, _ := strings.Cut(resource, "/")
	return fmt.Errorf("read the cluster: %w", apierrors.NewForbidden(schema.GroupResource{Group: group, Resource: of}, "", why))
}

func TestAnErrorOfAPermissionHasTheRuleToPaste(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		rule *rbacv1.PolicyRule
	}{
		{"list", refused("list", "karpenter.sh", "nodepools"), &rbacv1.PolicyRule{
			APIGroups: []string{"karpenter.sh"}, Resources: []string{"nodepools"}, Verbs: []string{"get", "list", "watch"},
		}},
		{"get, of the core group", refused("get", "", "nodes"), &rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"},
		}},
		{"create, of the controller's own write", refused("create", "coordination.k8s.io", "leases"), &rbacv1.PolicyRule{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"},
		}},
		{"patch of a subresource", refused("patch", "karpenter.sh", "nodepools/status"), &rbacv1.PolicyRule{
			APIGroups: []string{"karpenter.sh"}, Resources: []string{"nodepools/status"}, Verbs: []string{"patch"},
		}},
		{"a user with a hostile name", refusedTo(`x cannot delete resource "nodes" in API group "`, "list", "", "pods"), &rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"},
		}},
		{"a policy", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", errors.New("exceeded quota: small")), nil},
		{"an object that does not exist", apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "a"), nil},
		{"another error", errors.New("cannot list resource \"nodes\""), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			purpose := "read"
			if tt.rule != nil && len(tt.rule.Verbs) == 1 {
				purpose = tt.rule.Verbs[0]
			}
			message, rule, found := strings.Cut(shownError(tt.err), "\nA Role or ClusterRole with this rule lets you "+purpose+" them:\n")
			if message != tt.err.Error() || found != (tt.rule != nil) {
				t.Fatalf("the text is %q", shownError(tt.err))
			}
			if !found {
				return
			}
			var rules []rbacv1.PolicyRule
			if err := yaml.UnmarshalStrict([]byte(rule), &rules); err != nil || fmt.Sprint(rules) != fmt.Sprint([]rbacv1.PolicyRule{*tt.rule}) {
				t.Errorf("the rule is %v (%v), of %q", rules, err, rule)
			}
			if strings.Contains(rule, "\n") {
				t.Errorf("the rule has several lines: %q", rule)
			}
		})
	}
}

// What a command returns still has the answer of the API server.
func TestACommandThatMayNotReadNamesTheRule(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api":
			fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
			return
		case "/version":
			fmt.Fprint(w, `{"major":"1","minor":"37","gitVersion":"v1.37.0"}`)
			return
		case "/apis":
			fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
			return
		case "/api/v1":
			fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"namespaces","kind":"Namespace","verbs":["list"]}]}`)
			return
		}
		if !strings.HasPrefix(r.URL.Path, "/api/v1/") {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
			return
		}
		resource, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"details":{"kind":%q},`+
			`"message":"%s is forbidden: User \"jo\" cannot list resource \"%s\" in API group \"\" at the cluster scope"}`,
			resource, resource, resource)
	}))
	defer server.Close()
	config := kubeconfigOf(t, server.URL)
	stdout, stderr, err := command("", "snapshot", "--kubeconfig", config)
	if err == nil || !strings.Contains(shownError(err), `- {apiGroups: [""], resources: ["namespaces"], verbs: [get, list, watch]}`) {
		t.Errorf("no rule in %v %s %s", err, stdout, stderr)
	}
}
