package kubeletconfig

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		name, raw string
		says      []string // none = it is good
	}{
		{"nothing", `{}`, nil},
		{"what people set", `{"maxPods": 20, "kubeReserved": {"cpu": "80m"}, "evictionHard": {"memory.available": "5%"}, "clusterDNS": ["10.0.0.10"], "cpuCFSQuota": false}`, nil},
		{"an expression", `{"maxPods": "vcpus * 10"}`, nil},
		{"what only nodeadm passes on", `{"shutdownGracePeriod": "30s", "logging": {"verbosity": 3}, "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}], "registryPullQPS": 20, "featureGates": {"A": true}, "memoryThrottlingFactor": 0.9}`, nil},
		{"null", `{"maxPods": null, "logging": null}`, nil},
		{"a misspelt field", `{"maxPod": 20}`, []string{`unknown field "maxPod"`}},
		{"another case", `{"MaxPods": 20}`, []string{`unknown field "MaxPods"`}},
		{"a misspelt inner field", `{"logging": {"verbose": 3}}`, []string{`unknown field "logging.verbose"`}},
		{"a misspelt field of an element", `{"reservedMemory": [{"numa": 0}]}`, []string{`unknown field "reservedMemory[].numa"`}},
		{"several at once", `{"b": 1, "a": 2, "podsPerCore": "many"}`, []string{`unknown field "a"`, `unknown field "b"`, "podsPerCore is not a whole number"}},
		{"a fraction of pods", `{"podsPerCore": 1.5}`, []string{"podsPerCore is not a whole number"}},
		{"a number for a reserve", `{"kubeReserved": {"cpu": 1}}`, []string{"kubeReserved{} is not a string"}},
		{"no duration", `{"shutdownGracePeriod": "soon"}`, []string{"shutdownGracePeriod is not a duration"}},
		{"a number of seconds", `{"shutdownGracePeriod": 30}`, []string{"shutdownGracePeriod is not a duration"}},
		{"one for a list", `{"clusterDNS": "10.0.0.10"}`, []string{"clusterDNS is not a list"}},
		{"yes", `{"cpuCFSQuota": "yes"}`, []string{"cpuCFSQuota is not true or false"}},
		{"a list for all", `[]`, []string{"not an object"}},
		{"no JSON", `{`, []string{"JSON"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := Check([]byte(tc.raw))
			if (err == nil) != (len(tc.says) == 0) {
				t.Fatalf("error %v", err)
			}
			for _, says := range tc.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("error %q does not say %q", err, says)
				}
			}
		})
	}
}
