package crdtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/dovetail-k8s/dovetail/api/crds"
	"github.com/dovetail-k8s/dovetail/lab/controlplane"
)

// client speaks to the API server that all tests of this package share. They leave nothing but
// the one full object of each kind and what the charts make.
var client dynamic.Interface

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintf(os.Stderr, "crdtest: %v\n", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	binary := os.Getenv("DOVETAIL_LAB")
	if binary == "" {
		binary = filepath.Join("..", "..", "bin", "dovetail-lab")
	}
	if binary, err = filepath.Abs(binary); err != nil {
		return 0, err
	}
	if _, err := os.Stat(binary); err != nil {
		return 0, fmt.Errorf("these tests need an API server: build it with `make build`, or name it in DOVETAIL_LAB: %w", err)
	}
	dir, err := os.MkdirTemp("", "crdtest-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cluster, err := controlplane.Start(ctx, controlplane.Config{Name: "crdtest", Dir: dir, Executable: binary})
	if err != nil {
		return 0, err
	}
	defer func() {
		if stopErr := cluster.Stop(ctx); stopErr != nil && err == nil {
			err = stopErr
		}
	}()
	config := rest.CopyConfig(cluster.RESTConfig())
	config.QPS, config.Burst = -1, -1 // nobody else is there to be spared
	config.WarningHandlerWithContext = rest.NoWarnings{}
	if err := install(ctx, config); err != nil {
		return 0, fmt.Errorf("install the CustomResourceDefinitions: %w", err)
	}
	if client, err = dynamic.NewForConfig(config); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// install creates the CustomResourceDefinitions and waits until they are served.
func install(ctx context.Context, config *rest.Config) error {
	api, err := apiextensionsclient.NewForConfig(config)
	if err != nil {
		return err
	}
	all, err := crds.All()
	if err != nil {
		return err
	}
	definitions := api.ApiextensionsV1().CustomResourceDefinitions()
	for _, crd := range all {
		if _, err := definitions.Create(ctx, crd, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for _, crd := range all {
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			live, err := definitions.Get(ctx, crd.Name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			for _, c := range live.Status.Conditions {
				if c.Type == apiextensionsv1.NonStructuralSchema && c.Status == apiextensionsv1.ConditionTrue {
					return false, fmt.Errorf("%s: %s", crd.Name, c.Message)
				}
				if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
					return true, nil
				}
			}
			return false, nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", crd.Name, err)
		}
	}
	return nil
}

// eventuallyServed retries what the API server answers with "not found" while it still starts to serve a kind.
func eventuallyServed(ctx context.Context, request func() error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		last = request()
		return !apierrors.IsNotFound(last), nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return last
}
