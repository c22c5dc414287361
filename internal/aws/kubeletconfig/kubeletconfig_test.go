package kubeletconfig

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// fill sets every field below v, each list and map to one element.
func fill(v reflect.Value) {
	switch v.Interface().(type) {
	case metav1.Duration:
		v.Set(reflect.ValueOf(metav1.Duration{Duration: time.Minute}))
		return
	case resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse("1Gi")))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	}
}

// A configuration that sets every field of the kubelet's own type is accepted.
func TestEveryFieldOfTheKubelet(t *testing.T) {
	var config kubeletv1beta1.KubeletConfiguration
	fill(reflect.ValueOf(&config).Elem())
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{`"maxPods":1`, `"memoryThrottlingFactor":0.5`, `"reservedMemory":[{`, `"registerWithTaints":[{`, `"infoBufferSize"`} {
		if !strings.Contains(string(raw), field) {
			t.Fatalf("the configuration lacks %s: %s", field, raw)
		}
	}
	if err := Check(raw); err != nil {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		name, raw string
		wantErrs  []string // empty if the configuration is valid
	}{
		{"nothing", `{}`, nil},
		{
			"what people set",
			`{"maxPods": 20, "kubeReserved": {"cpu": "80m"}, "evictionHard": {"memory.available": "5%"}, "clusterDNS": ["10.0.0.10"], "cpuCFSQuota": false}`, nil,
		},
		{"an expression", `{"maxPods": "vcpus * 10"}`, nil},
		{
			"what only nodeadm passes on",
			`{"shutdownGracePeriod": "30s", "logging": {"verbosity": 3}, "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}], "registryPullQPS": 20, "featureGates": {"A": true}, "memoryThrottlingFactor": 0.9}`, nil,
		},
		{"null", `{"maxPods": null, "logging": null}`, nil},
		{"a misspelt field", `{"maxPod": 20}`, []string{`unknown field "maxPod"`}},
		{"another case", `{"MaxPods": 20}`, []string{`unknown field "MaxPods"`}},
		{"a misspelt inner field", `{"logging": {"verbose": 3}}`, []string{`unknown field "logging.verbose"`}},
		{"a misspelt field of an element", `{"reservedMemory": [{"numa": 0}]}`, []string{`unknown field "reservedMemory[].numa"`}},
		{"several at once", `{"b": 1, "a": 2, "podsPerCore": "many"}`, []string{
			`unknown field "a"`, `unknown field "b"`,
			"podsPerCore is not a whole number",
		}},
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
			if (err == nil) != (len(tc.wantErrs) == 0) {
				t.Fatalf("error %v", err)
			}
			for _, want := range tc.wantErrs {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}
