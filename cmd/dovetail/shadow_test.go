package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Anyone who may edit the ConfigMap writes no lines and no control sequences into the terminal of anyone who reads the report.
func TestAShadowReportOfSomebodyElse(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !strings.HasSuffix(r.URL.Path, "/configmaps/dovetail-shadow") {
			fmt.Fprint(w, `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1",
				"resources": [{"name": "configmaps", "kind": "ConfigMap", "namespaced": true, "verbs": ["get"]}]}`)
			return
		}
		fmt.Fprintf(w, `{"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "dovetail-shadow"}, "data": {"report.json": %q}}`,
			`{"format": 2, "actions": [{"what": "remove", "nodes": ["a\nspent 0\u001b[2J"], "reason": "\u202e"}]}`)
	}))
	defer server.Close()
	config := kubeconfigOf(t, server.URL)
	stdout, _, err := command("", "shadow", "report", "--kubeconfig", config)
	if err != nil || strings.ContainsAny(stdout, "\x1b\u202e") || strings.Contains(stdout, "\nspent 0") ||
		!strings.Contains(stdout, "removed a") {
		t.Errorf("%v\n%q", err, stdout)
	}
}
