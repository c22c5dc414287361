package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/report"
	"github.com/dovetail-k8s/dovetail/internal/shadow"
)

func shadowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shadow",
		Short: "Compare what Dovetail would have done with what another controller did",
		Long: `A controller with --shadow (settings.shadow of the chart) runs beside the one that acts. It plans as if it acted, changes
nothing, and writes a report into the ConfigMap dovetail-shadow.`,
		Example: `  dovetail shadow report --namespace karpenter
  dovetail controller --shadow --leader-election-namespace karpenter --cluster-name shop`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(shadowReportCommand())
	return cmd
}

// shadowReportFlags are the flags of the command shadow report.
type shadowReportFlags struct {
	kube      kubeFlags
	namespace string
	output    choice
}

func shadowReportCommand() *cobra.Command {
	var f shadowReportFlags
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Print the report of a controller in shadow mode",
		Long: `Prints what Dovetail would have launched and removed since the shadow began, what the acting controller did, and
what both fleets cost. It reads one ConfigMap, and nothing else.`,
		Example: `  dovetail shadow report
  dovetail shadow report --namespace karpenter -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			kube, _, err := f.kube.client()
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), kube, cmd.OutOrStdout())
		},
	}
	f.kube.bind(cmd)
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", metav1.NamespaceSystem, "namespace of the controller in shadow mode")
	bindOutput(cmd, &f.output, "text", "json")
	return cmd
}

func (f *shadowReportFlags) run(ctx context.Context, kube client.Reader, out io.Writer) error {
	m := &corev1.ConfigMap{}
	err := kube.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: shadow.ConfigMapName}, m)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("namespace %s has no ConfigMap %s: name the namespace of the controller with --namespace, "+
			"and check that it runs with --shadow", f.namespace, shadow.ConfigMapName)
	}
	if err != nil {
		return fmt.Errorf("read the report: %w", err)
	}
	found, err := shadow.ReadReport(m)
	if err != nil {
		return err
	}
	if f.output.value == "json" {
		return report.JSON(out, "ShadowReport", found)
	}
	return forTerminal(found.Text)(out)
}
