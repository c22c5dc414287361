package destroy

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// LedgerName is the name of the ConfigMap with the ledger, in the namespace of the lease.
const LedgerName = "dovetail-deletions"

// ledgerKey states where the ConfigMap has the ledger.
const ledgerKey = "ledger.json"

// ConfigMap keeps the ledger in a ConfigMap. Only the leader writes it; it is not safe for concurrent use.
type ConfigMap struct {
	Client typedcorev1.ConfigMapInterface

	// version is the resource version that was read or written last.
	version string
}

// Load implements Store.
func (c *ConfigMap) Load(ctx context.Context) (Ledger, error) {
	found, err := c.Client.Get(ctx, LedgerName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Ledger{}, nil
	}
	if err != nil {
		return Ledger{}, failed("read", err)
	}
	var l Ledger
	if err := json.Unmarshal([]byte(found.Data[ledgerKey]), &l); err != nil {
		return Ledger{}, fmt.Errorf("ConfigMap %s: data[%q] is no ledger of deletions: %w; delete the ConfigMap to begin a new one",
			LedgerName, ledgerKey, err)
	}
	c.version = found.ResourceVersion
	return l, nil
}

// Save implements Store. Another write may have come in between: its own, if the answer was lost, or the last one of a former
// leader. It is replaced, since the caller has the ledger of the leader.
func (c *ConfigMap) Save(ctx context.Context, l Ledger) error {
	text, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encode the ledger of deletions: %w", err)
	}
	err = c.write(ctx, string(text))
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		found, readErr := c.Client.Get(ctx, LedgerName, metav1.GetOptions{})
		if readErr != nil {
			return failed("read", readErr)
		}
		c.version = found.ResourceVersion
		err = c.write(ctx, string(text))
	}
	if err != nil {
		return failed("write", err)
	}
	return nil
}

// failed states what to do if the controller lacks a permission, as with the Role of an older chart.
func failed(verb string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%s ConfigMap %s: %w; the controller's Role must allow to create ConfigMaps, and to get and update this one, "+
			"as the Role of the chart does", verb, LedgerName, err)
	}
	return fmt.Errorf("%s ConfigMap %s: %w", verb, LedgerName, err)
}

// write writes the ConfigMap if it has the version that is known.
func (c *ConfigMap) write(ctx context.Context, text string) (err error) {
	wanted := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: LedgerName, ResourceVersion: c.version}, Data: map[string]string{ledgerKey: text},
	}
	var written *corev1.ConfigMap
	if c.version == "" {
		written, err = c.Client.Create(ctx, wanted, metav1.CreateOptions{})
	} else if written, err = c.Client.Update(ctx, wanted, metav1.UpdateOptions{}); apierrors.IsNotFound(err) { // a person has deleted it
		wanted.ResourceVersion = ""
		written, err = c.Client.Create(ctx, wanted, metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	c.version = written.ResourceVersion
	return nil
}
