package ekscluster

import (
	"encoding/base64"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// A record is believed by the cluster that it is about, and by no copy of it.
func TestRecordOfAnotherClusterIsIgnored(t *testing.T) {
	const endpoint, inside = "https://ABC.gr7.eu-west-1.eks.amazonaws.com", "https://10.100.0.1"
	here := Record{ClusterName: "shop", Region: "eu-west-1", ClusterUID: "uid-1"}
	record := here
	record.Endpoint, record.CA, record.ServiceCIDR = endpoint, base64.StdEncoding.EncodeToString(bundle("a")), "10.100.0.0/16"
	inThe := func(authorities ...string) APIServer { return APIServer{Endpoint: inside, CA: bundle(authorities...)} }
	same := func(*Record) {}
	for name, tc := range map[string]struct {
		change func(*Record)
		local  APIServer
		want   bool
	}{
		"this cluster":                           {same, inThe("a"), true},
		"this cluster, while its CA is rotated":  {same, inThe("b", "a"), true},
		"restored elsewhere: another CA":         {same, inThe("b"), false},
		"objects restored elsewhere: other UID":  {func(r *Record) { r.ClusterUID = "uid-2" }, inThe("a"), false},
		"another name is configured":             {func(r *Record) { r.ClusterName = "web" }, inThe("a"), false},
		"another region is configured":           {func(r *Record) { r.Region = "us-east-1" }, inThe("a"), false},
		"the CA here is not known":               {same, inThe(), false},
		"the record has no CA":                   {func(r *Record) { r.CA = "" }, inThe("a"), false},
		"the record's CA is not base64":          {func(r *Record) { r.CA = "?" }, inThe("a"), false},
		"neither has a UID, which proves little": {func(r *Record) { r.ClusterUID = "" }, inThe("a"), false},
	} {
		r, id := record, here
		tc.change(&r)
		if r.ClusterUID == "" {
			id.ClusterUID = ""
		}
		if got := r.describes(id, tc.local); got != tc.want {
			t.Errorf("%s: believed = %v", name, got)
		}
	}
}

// Whichever replica reads EKS first, both find the record, and equal ones are written once.
func TestReplicasShareTheRecord(t *testing.T) {
	client := fake.NewClientset().CoreV1().ConfigMaps("kube-system")
	first, second := &ConfigMapRecords{Client: client}, &ConfigMapRecords{Client: client}
	if _, found, err := first.Load(t.Context()); found || err != nil {
		t.Fatalf("a record before the first: %v, %v", found, err)
	}
	old := Record{ClusterName: "shop", ClusterUID: "uid-0"}
	new := Record{ClusterName: "shop", ClusterUID: "uid-1", ServiceCIDR: "10.100.0.0/16"}
	for i, step := range []struct {
		by   *ConfigMapRecords
		save Record
	}{{first, old}, {second, new}, {first, new}, {second, new}} {
		if err := step.by.Save(t.Context(), step.save); err != nil {
			t.Errorf("step %d: %v", i, err)
		}
		got, found, err := (&ConfigMapRecords{Client: client}).Load(t.Context())
		if err != nil || !found || got != step.save {
			t.Errorf("step %d: %+v, %v, %v", i, got, found, err)
		}
	}
	broken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: RecordName}, Data: map[string]string{recordKey: "{"}}
	if _, err := client.Update(t.Context(), broken, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := first.Load(t.Context()); err == nil {
		t.Error("a broken record is read")
	}
}
