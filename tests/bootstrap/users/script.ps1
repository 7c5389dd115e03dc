$name = 'it''s mine'
Write-Host "starting $name: `$env:COMPUTERNAME"
