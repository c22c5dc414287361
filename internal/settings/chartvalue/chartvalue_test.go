package chartvalue_test

import (
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/settings/chartvalue"
)

func TestOf(t *testing.T) {
	for flag, want := range map[string]string{
		"cluster-name": "settings.clusterName", "reserved-enis": "settings.reservedENIs", "cluster-ca-bundle": "settings.clusterCABundle",
		"log-level": "logLevel", "memory-limit": "",
	} {
		if got := chartvalue.Of(flag); got != want {
			t.Errorf("--%s is %q, want %q", flag, got, want)
		}
	}
}
