package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/migrate"
)

// A cluster that cannot be read, or not in full, is not a sound one, and programs get a document about it.
func TestMigrateCheckOfWhatCannotBeReadExitsWith3(t *testing.T) {
	t.Setenv("CLUSTER_NAME", "")
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no \u001b[2J %s"}`,
			r.URL.Path)
	}))
	defer refusing.Close()
	for _, tt := range []struct {
		name, server string
		results      int
	}{{"down", down.URL, 1}, {"refusing", refusing.URL, len(migrate.Checks())}} {
		t.Run(tt.name, func(t *testing.T) {
			config := kubeconfigOf(t, tt.server)
			for _, format := range []string{"json", "yaml"} {
				stdout, _, err := command("", "migrate", "check", "--kubeconfig", config, "-o", format)
				var report migrate.Report
				if format == "json" {
					if err := json.Unmarshal([]byte(stdout), &report); err != nil {
						t.Fatalf("%v\n%s", err, stdout)
					}
					if len(report.Results) < tt.results || report.Count(migrate.OK) > 0 {
						t.Errorf("%s", stdout)
					}
				}
				if codeOf(err) != exitIncomplete || !strings.Contains(stdout, "not checked") {
					t.Errorf("%s: %v\n%s", format, err, stdout)
				}
			}
			stdout, stderr, err := command("", "migrate", "check", "--kubeconfig", config)
			if codeOf(err) != exitIncomplete || strings.Contains(stdout, "\nok ") || strings.Contains(stdout, "\x1b") {
				t.Errorf("%v\n%s%s", err, stdout, stderr)
			}
		})
	}
}

func TestAPlanOfWhatCannotBeReadIsAnError(t *testing.T) {
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	stdout, _, err := command("", "migrate", "plan", "--kubeconfig", kubeconfigOf(t, down.URL), "-o", "json")
	if codeOf(err) != exitError || stdout != "" {
		t.Errorf("%v\n%s", err, stdout)
	}
}
