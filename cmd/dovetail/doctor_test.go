package main

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/doctor"
)

// The exit code tells whether anything is wrong; what is only worth knowing is shown on request.
func TestDoctorPrints(t *testing.T) {
	finding := func(severity doctor.Severity) doctor.Finding {
		return doctor.Finding{Check: "c", Severity: severity, Object: "X y", Seen: "seen " + string(severity), Manifest: "kind: " + string(severity) + "\n"}
	}
	for _, tt := range []struct {
		name     string
		flags    doctorFlags
		findings []doctor.Finding
		exit     error
		says     string
		silent   string
	}{
		{"clean", doctorFlags{}, nil, nil, "0 findings", "seen"},
		{"worth knowing", doctorFlags{}, []doctor.Finding{finding(doctor.Info)}, nil, "0 findings", "seen info"},
		{"worth knowing, asked for", doctorFlags{all: true}, []doctor.Finding{finding(doctor.Info)}, nil, "seen info", "ERROR"},
		{"wrong", doctorFlags{}, []doctor.Finding{finding(doctor.Error), finding(doctor.Info)}, exitFindings, "seen error", "seen info"},
		{"for machines", doctorFlags{output: "json"}, []doctor.Finding{finding(doctor.Warning)}, exitFindings, `"severity": "warning"`, "1 findings"},
		{"manifests", doctorFlags{manifests: true}, []doctor.Finding{finding(doctor.Warning)}, exitFindings, "kind: warning", "why:"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			err := tt.flags.print(doctor.Report{Findings: tt.findings}, &out)
			if !errors.Is(err, tt.exit) || !strings.Contains(out.String(), tt.says) || strings.Contains(out.String(), tt.silent) {
				t.Errorf("error %v, want %v; printed:\n%s", err, tt.exit, out.String())
			}
		})
	}
}

// A cluster that cannot be looked at is not a clean one.
func TestDoctorIsBlind(t *testing.T) {
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {}}]\nclusters: [{name: x, cluster: {server: '" + down.URL + "'}}]\n"
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", path)
	_, stderr, err := command("", "doctor")
	if !errors.Is(err, exitBlind) || !strings.Contains(stderr, "reach the API server") {
		t.Errorf("error %v, stderr %q", err, stderr)
	}
}
