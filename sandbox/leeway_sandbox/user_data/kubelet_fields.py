"""The fields of KubeletConfiguration and the flags of the kubelet, with their types.

Sources: kubelet.config.k8s.io/v1beta1 in `staging/src/k8s.io/kubelet/config/v1beta1/types.go`, and
`cmd/kubelet/app/options/options.go` of Kubernetes.
"""

from collections.abc import Mapping

from leeway_sandbox.user_data.fields import ListOf, MapOf, Type, named

_TEXTS = ListOf("string")
_TEXT_MAP = MapOf("string")
_TAINT: Mapping[str, Type] = {
    "key": "string",
    "value": "string",
    "effect": "string",
    "timeAdded": "string",
}


FIELDS: Mapping[str, Type] = {
    "apiVersion": "string",
    "kind": "string",
    **named(
        "bool",
        """enableServer rotateCertificates serverTLSBootstrap enableDebuggingHandlers
        enableContentionProfiling cgroupsPerQOS singleProcessOOMKill runOnce cpuCFSQuota
        serializeImagePulls mergeDefaultEvictionSettings enableControllerAttachDetach
        protectKernelDefaults makeIPTablesUtilChains failSwapOn kernelMemcgNotification
        enableSystemLogHandler enableSystemLogQuery enableProfilingHandler
        enableDebugFlagsHandler seccompDefault registerNode localStorageCapacityIsolation
        failCgroupV1""",
    ),
    **named(
        "int32",
        """port readOnlyPort registryPullQPS registryBurst eventRecordQPS eventBurst healthzPort
        oomScoreAdj nodeLeaseDurationSeconds imageGCHighThresholdPercent
        imageGCLowThresholdPercent maxPods nodeStatusMaxImages kubeAPIQPS kubeAPIBurst
        maxParallelImagePulls evictionMaxPodGracePeriod podsPerCore iptablesMasqueradeBit
        iptablesDropBit containerLogMaxFiles containerLogMaxWorkers""",
    ),
    **named("int64", "podPidsLimit maxOpenFiles"),
    **named(
        "string",
        """staticPodPath podLogsDir staticPodURL address tlsCertFile tlsPrivateKeyFile
        tlsMinVersion imagePullCredentialsVerificationPolicy healthzBindAddress clusterDomain
        kubeletCgroups systemCgroups cgroupRoot cgroupDriver cpuManagerPolicy
        memoryManagerPolicy topologyManagerPolicy topologyManagerScope hairpinMode podCIDR
        resolvConf contentType containerLogMaxSize configMapAndSecretChangeDetectionStrategy
        reservedSystemCPUs showHiddenMetricsForVersion systemReservedCgroup kubeReservedCgroup
        volumePluginDir providerID memoryReservationPolicy containerRuntimeEndpoint
        imageServiceEndpoint""",
    ),
    **named(
        "duration",
        """syncFrequency fileCheckFrequency httpCheckFrequency streamingConnectionIdleTimeout
        nodeStatusUpdateFrequency nodeStatusReportFrequency imageMinimumGCAge imageMaximumGCAge
        volumeStatsAggPeriod cpuManagerReconcilePeriod runtimeRequestTimeout cpuCFSQuotaPeriod
        evictionPressureTransitionPeriod containerLogMonitorInterval shutdownGracePeriod
        shutdownGracePeriodCriticalPods""",
    ),
    **named(
        _TEXTS,
        """tlsCipherSuites preloadedImagesVerificationAllowlist clusterDNS enforceNodeAllocatable
        allowedUnsafeSysctls""",
    ),
    **named(
        _TEXT_MAP,
        """cpuManagerPolicyOptions topologyManagerPolicyOptions qosReserved evictionHard
        evictionSoft evictionSoftGracePeriod evictionMinimumReclaim systemReserved kubeReserved""",
    ),
    **named(
        "any",
        """authentication authorization memorySwap logging crashLoopBackOff reservedMemory tracing
        userNamespaces systemPartition""",
    ),
    "tlsCurvePreferences": ListOf("int32"),
    "staticPodURLHeader": MapOf(_TEXTS),
    "featureGates": MapOf("bool"),
    "memoryThrottlingFactor": "float",
    "registerWithTaints": ListOf(_TAINT),
    "shutdownGracePeriodByPodPriority": ListOf(
        {"priority": "int32", "shutdownGracePeriodSeconds": "int64"}
    ),
}

# A flag's type: "string" is any text.
FLAGS: Mapping[str, Type] = {
    **named(
        "bool",
        """anonymous-auth authentication-token-webhook cgroups-per-qos contention-profiling
        cpu-cfs-quota enable-controller-attach-detach enable-debugging-handlers enable-server
        exit-on-lock-contention fail-swap-on help keep-terminated-pod-volumes
        kernel-memcg-notification local-storage-capacity-isolation make-iptables-util-chains
        protect-kernel-defaults register-node register-schedulable rotate-certificates
        rotate-server-certificates runonce seccomp-default serialize-image-pulls version
        windows-service
        """,
    ),
    **named(
        "number",
        """container-log-max-files event-burst event-qps eviction-max-pod-grace-period healthz-port
        image-gc-high-threshold image-gc-low-threshold iptables-drop-bit iptables-masquerade-bit
        kube-api-burst kube-api-qps max-open-files max-pods maximum-dead-containers
        maximum-dead-containers-per-container node-status-max-images oom-score-adj pod-max-pids
        pods-per-core port read-only-port registry-burst registry-qps v""",
    ),
    **named(
        "duration",
        """authentication-token-webhook-cache-ttl authorization-webhook-cache-authorized-ttl
        authorization-webhook-cache-unauthorized-ttl cpu-cfs-quota-period
        cpu-manager-reconcile-period eviction-pressure-transition-period file-check-frequency
        http-check-frequency log-flush-frequency minimum-container-ttl-duration
        minimum-image-ttl-duration node-status-update-frequency runtime-request-timeout
        streaming-connection-idle-timeout sync-frequency volume-stats-agg-period""",
    ),
    **named(
        "string",
        """address allowed-unsafe-sysctls authorization-mode bootstrap-kubeconfig cert-dir
        cgroup-driver cgroup-root client-ca-file cloud-config cloud-provider cluster-dns
        cluster-domain config config-dir container-log-max-size container-runtime-endpoint
        cpu-manager-policy cpu-manager-policy-options enforce-node-allocatable eviction-hard
        eviction-minimum-reclaim eviction-soft eviction-soft-grace-period
        experimental-mounter-path feature-gates hairpin-mode healthz-bind-address
        hostname-override image-credential-provider-bin-dir image-credential-provider-config
        image-service-endpoint kube-api-content-type kube-reserved kube-reserved-cgroup kubeconfig
        kubelet-cgroups lock-file logging-format manifest-url manifest-url-header
        memory-manager-policy node-ip node-labels pod-cidr pod-infra-container-image
        pod-manifest-path provider-id qos-reserved register-with-taints reserved-cpus
        reserved-memory resolv-conf root-dir system-cgroups system-reserved
        system-reserved-cgroup tls-cert-file tls-cipher-suites tls-min-version
        tls-private-key-file topology-manager-policy topology-manager-policy-options
        topology-manager-scope vmodule volume-plugin-dir windows-priorityclass""",
    ),
}
