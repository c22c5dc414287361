package shadow

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	// ConfigMapName is the name of the ConfigMap with the report.
	ConfigMapName = "dovetail-shadow"
	// reportKey has the Report, stateKey what the next process continues from.
	reportKey, stateKey = "report.json", "state.json"
	// maxStateBytes leaves room for the report in the 1 MiB of a ConfigMap.
	maxStateBytes = 700 << 10
	fieldManager  = "dovetail-shadow"
)

// ConfigMap keeps a Ledger in the ConfigMap ConfigMapName of a namespace.
type ConfigMap struct {
	Client typedcorev1.ConfigMapInterface
}

// Load continues what the ConfigMap has; a missing one changes nothing.
func (c ConfigMap) Load(ctx context.Context, l *Ledger) error {
	found, err := c.Client.Get(ctx, ConfigMapName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read ConfigMap %s: %w", ConfigMapName, err)
	}
	version := l.state.Report.Version
	var read state
	if err := json.Unmarshal([]byte(found.Data[stateKey]), &read); err != nil {
		return fmt.Errorf("ConfigMap %s: data[%q] is not of this program: %w; delete the ConfigMap to begin again", ConfigMapName, stateKey, err)
	}
	if read.Report, err = ReadReport(found); err != nil {
		return err
	}
	read.Report.Version = version
	l.state = read
	return nil
}

// Save writes the ConfigMap by server-side apply: one request, whether it exists or not, which names the ConfigMap, so that RBAC can
// allow this one and no other.
func (c ConfigMap) Save(ctx context.Context, l *Ledger) error {
	report, err := json.MarshalIndent(l.state.Report, "", " ")
	if err != nil {
		return err
	}
	kept := l.state
	kept.Report = Report{} // it is in the other key
	rest, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	if len(rest) > maxStateBytes {
		// After a restart, what waits now may count again.
		kept.Pending, kept.Known = nil, nil
		if rest, err = json.Marshal(kept); err != nil {
			return err
		}
	}
	body, err := json.Marshal(corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: ConfigMapName},
		Data:       map[string]string{reportKey: string(report), stateKey: string(rest)},
	})
	if err != nil {
		return err
	}
	force := true
	_, err = c.Client.Patch(ctx, ConfigMapName, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: fieldManager, Force: &force})
	if err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", ConfigMapName, err)
	}
	return nil
}

// ReadReport reads the Report of the ConfigMap.
func ReadReport(m *corev1.ConfigMap) (r Report, err error) {
	text, found := m.Data[reportKey]
	if !found {
		return r, fmt.Errorf("ConfigMap %s/%s has no data[%q]: it is not of a shadow of Dovetail", m.Namespace, m.Name, reportKey)
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("ConfigMap %s/%s: data[%q]: %w", m.Namespace, m.Name, reportKey, err)
	}
	return r, nil
}
