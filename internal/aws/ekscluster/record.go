package ekscluster

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Record describes what EKS has returned of a cluster, for a process that starts while EKS does not answer. It is believed only by the
// cluster that it is about: one that was copied or restored elsewhere has another UID or another CA.
type Record struct {
	// ClusterName, Region and ClusterUID are the identity of the cluster that EKS was called for.
	ClusterName string `json:"clusterName"`
	Region      string `json:"region"`
	ClusterUID  string `json:"clusterUID"`
	// Endpoint, CA, in base64, and ServiceCIDR are EKS's answer.
	Endpoint    string `json:"endpoint"`
	CA          string `json:"ca"`
	ServiceCIDR string `json:"serviceCIDR"`
}

// Records keeps a Record where the next process, and other replicas, find it.
type Records interface {
	// Load returns false where there is none.
	Load(ctx context.Context) (Record, bool, error)
	Save(ctx context.Context, r Record) error
}

// describes reports whether the record is certainly about the cluster with this API server.
func (r Record) describes(id Record, local APIServer) bool {
	if r.ClusterName != id.ClusterName || r.Region != id.Region || r.ClusterUID != id.ClusterUID || r.ClusterUID == "" {
		return false
	}
	ca, err := base64.StdEncoding.DecodeString(r.CA)
	if err != nil {
		return false
	}
	doubt, err := CheckIdentity(r.ClusterName, local, APIServer{Endpoint: r.Endpoint, CA: ca})
	return err == nil && doubt == ""
}

// RecordName is the name of the ConfigMap that ConfigMapRecords keeps.
const RecordName = "dovetail-eks-cluster"

// recordKey states where the ConfigMap has the record.
const recordKey = "cluster.json"

// ConfigMapRecords keeps the record in a ConfigMap. All replicas write the same, so that the last one may win.
type ConfigMapRecords struct {
	Client typedcorev1.ConfigMapInterface

	mu   sync.Mutex
	last Record // that was read or written
}

// Load implements Records.
func (c *ConfigMapRecords) Load(ctx context.Context) (Record, bool, error) {
	found, err := c.Client.Get(ctx, RecordName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("read ConfigMap %s: %w", RecordName, err)
	}
	var r Record
	if err := json.Unmarshal([]byte(found.Data[recordKey]), &r); err != nil {
		return Record{}, false, fmt.Errorf("ConfigMap %s: data[%q] is no record of a cluster: %w", RecordName, recordKey, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = r
	return r, true, nil
}

// Save implements Records. It writes nothing where nothing has changed.
func (c *ConfigMapRecords) Save(ctx context.Context, r Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == r {
		return nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the record of cluster %s: %w", r.ClusterName, err)
	}
	wanted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: RecordName}, Data: map[string]string{recordKey: string(text)}}
	_, err = c.Client.Update(ctx, wanted, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = c.Client.Create(ctx, wanted, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) { // another replica has written it
		return fmt.Errorf("write ConfigMap %s: %w", RecordName, err)
	}
	c.last = r
	return nil
}
