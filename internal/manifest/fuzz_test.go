package manifest_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// Any file, beside a snapshot or alone, is read or causes an error.
func FuzzRead(f *testing.F) {
	snapshot, err := os.ReadFile("../../cmd/dovetail/testdata/plan/now.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, pattern := range []string{"../../examples/plan/*.yaml", "../../cmd/dovetail/testdata/plan/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range files {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Add(
		[]byte(
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {replicas: 9, template: {metadata: {labels: {app: web}}}}}",
		),
	)
	f.Add(
		[]byte(
			"{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent, namespace: shop}, spec: {template: {spec: {nodeSelector: {a: b}}}}}",
		),
	)
	f.Add(
		[]byte(
			"{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db, namespace: shop}, spec: {replicas: 2, ordinals: {start: 7}, template: {}}}",
		),
	)
	now := filepath.Join(f.TempDir(), "now.yaml")
	if err := os.WriteFile(now, snapshot, 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, paths := range [][]string{{"-"}, {now, "-"}} {
			w, err := manifest.Input{Paths: paths, Stdin: bytes.NewReader(data), MaxBytes: 1 << 20}.Read()
			if (w == nil) == (err == nil) {
				t.Errorf("a world %v and an error %v", w, err)
			}
		}
	})
}
