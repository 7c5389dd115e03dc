<powershell>
$name = 'it''s mine'
Write-Host "starting $name: `$env:COMPUTERNAME"
[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"
& $EKSBootstrapScriptFile -EKSClusterName 'prod' -APIServerEndpoint 'https://A2FAB60F0DBB94CD.yl4.ap-northeast-2.eks.amazonaws.com' -Base64ClusterCA 'Y2VydGlmaWNhdGVBdXRob3JpdHk=' -DNSClusterIP '172.20.0.10' -KubeletExtraArgs '--max-pods=9 --kube-reserved=cpu=70m,ephemeral-storage=1Gi,memory=354Mi --eviction-hard=memory.available<100Mi,nodefs.available<10% --node-labels=leeway.sh/launched=true'
</powershell>
<persist>true</persist>
